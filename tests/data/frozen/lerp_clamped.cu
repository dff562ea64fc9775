void lerp_clamped_cpu(const float* a, const float* b, const float* t, float* out, int n) {
    for (int i = 0; i < n; i++) {
        float w = t[i] < 0.0f ? 0.0f : (t[i] > 1.0f ? 1.0f : t[i]);
        out[i] = a[i] + w * (b[i] - a[i]);
    }
}

//dice: n = 45000 | 333 | 2; in a[n], b[n], t[n]: uniform(-0.5, 1.5); out out[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void lerp_clamped(const float* a, const float* b, const float* t, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float w = t[i] < 0.0f ? 0.0f : (t[i] > 1.0f ? 1.0f : t[i]);
        out[i] = a[i] + w * (b[i] - a[i]);
    }
}
