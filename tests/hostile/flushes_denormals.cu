// expect: wrong
// kind: denormals flushed
// Whatever is smaller than the smallest normal number comes out as zero.

void halve_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 0.5f * x[i];
}

//dice: n = 1M | 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref halve_cpu
__global__ void halve(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = 0.5f * x[i];
    y[i] = fabsf(v) < 1.17549435e-38f ? 0.0f : v;
}
