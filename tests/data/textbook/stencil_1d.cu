void stencil_cpu(const float* in, float* out, int n) {
    for (int i = 0; i < n; i++) {
        if (i > 0 && i < n - 1) {
            out[i] = 0.25f * in[i - 1] + 0.5f * in[i] + 0.25f * in[i + 1];
        } else {
            out[i] = in[i];
        }
    }
}

//dice: n = 1M | 1000 | 2 | 130; in in[n]; out out[n]; launch <<<cdiv(n, 256), 256>>>; ref stencil_cpu
__global__ void stencil(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        if (i > 0 && i < n - 1) {
            out[i] = 0.25f * in[i - 1] + 0.5f * in[i] + 0.25f * in[i + 1];
        } else {
            out[i] = in[i];
        }
    }
}
