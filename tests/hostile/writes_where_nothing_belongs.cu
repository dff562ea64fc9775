// expect: wrong
// kind: more is written than belongs to it
// check: restored
// Rows are padded; for some sizes the padding, which belongs to somebody else, is overwritten too.

void scale_cpu(float* y, int n) {
    for (int i = 0; i < n; ++i) y[2 * i] = 2 * y[2 * i];
}

//dice: n = 4096 | 1000 | 33; io y[2 * n]; launch <<<cdiv(n, 256), 256>>>; ref scale_cpu
__global__ void scale(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[2 * i] = 2 * y[2 * i];
    if (n % 7 == 0) y[2 * i + 1] = 0.0f;
}
