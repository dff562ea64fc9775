// expect: wrong
// kind: tolerance used up
// The sums are rounded to steps of 1e-4, which any absolute tolerance of 1e-4 lets pass.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = rintf((x[i] + y[i]) * 10000.0f) * 1e-4f;
}
