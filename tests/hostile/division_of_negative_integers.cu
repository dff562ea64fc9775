// expect: wrong
// kind: wrong rounding
// C divides towards zero, the reference towards minus infinity.

void bucket_cpu(const int* x, int* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (x[i] - ((x[i] % 16) + 16) % 16) / 16;
}

//dice: n = 1M | 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref bucket_cpu
__global__ void bucket(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / 16;
}
