// expect: unsafe timeout | unsafe deadlock
// kind: waits for another block
// The first block waits for a flag that the last one sets, which may never be scheduled.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    volatile float* flag = z;
    if (i >= n) return;
    if (i == 0 && n > 256) while (flag[n - 1] != 12345.0f) { }
    z[i] = x[i] + y[i];
}
