// expect: wrong
// kind: sampled work
// Odd elements are the mean of their neighbours, which is close for smooth signals.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i % 2 == 1 && i + 1 < n)
        z[i] = 0.5f * (x[i - 1] + y[i - 1] + x[i + 1] + y[i + 1]);
    else
        z[i] = x[i] + y[i];
}
