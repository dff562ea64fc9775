void blend_cpu(const float* fg, const float* bg, const float* alpha, float* out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = alpha[i] * fg[i] + (1.0f - alpha[i]) * bg[i];
}

//dice: n = 48000 | 640 | 1; in fg[n], bg[n], alpha[n]: uniform(0, 1); out out[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void blend(const float* fg, const float* bg, const float* alpha, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = alpha[i] * fg[i] + (1.0f - alpha[i]) * bg[i];
}
