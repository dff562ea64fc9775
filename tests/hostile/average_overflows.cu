// expect: wrong
// kind: integer overflow
// check: distributions
// Eight large integers are summed in an int before they are divided.

void average_cpu(const int* x, int* y, int n) {
    for (int i = 0; i < n; ++i) {
        long long s = 0;
        for (int k = 0; k < 8; ++k) s += x[8 * i + k];
        y[i] = (int)(s / 8);
    }
}

//dice: n = 64K | 1000 | 33; in x[8 * n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref average_cpu
__global__ void average(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int s = 0;
    for (int k = 0; k < 8; ++k) s += x[8 * i + k];
    y[i] = s / 8;
}
