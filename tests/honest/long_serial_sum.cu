// A million terms added one after another: as inexact as single precision is, and right.

void column_sums_cpu(const float* x, float* y, int n) {
    for (int c = 0; c < 8; ++c) y[c] = 0.0f;
    for (int i = 0; i < n; ++i) for (int c = 0; c < 8; ++c) y[c] += x[i * 8 + c];
}

//dice: n = 125000 | 999 | 4097; in x[n * 8]; out y[8]; launch <<<1, 8>>>; ref column_sums_cpu
__global__ void column_sums(const float* x, float* y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i * 8 + threadIdx.x];
    y[threadIdx.x] = sum;
}
