// expect: wrong
// kind: integers through floats
// A float holds 24 bits of the integer.

void scale_cpu(const int* x, int* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] + 3;
}

//dice: n = 1M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref scale_cpu
__global__ void scale(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = static_cast<int>(x[i] + 3.0f);
}
