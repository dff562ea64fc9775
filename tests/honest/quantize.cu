// Rounding to steps: in double precision the reference may round the other way.

void quantize_cpu(const float* x, int* q, float* back, float scale, int n) {
    for (int i = 0; i < n; ++i) {
        float v = x[i] / scale;
        q[i] = (int)floorf(v + 0.5f);
        back[i] = floorf(v + 0.5f) * scale;
    }
}

//dice: n = 16M | 60000; in x[n]; out q[n], back[n]; launch <<<cdiv(n, 256), 256>>>; set scale = 0.0001f; ref quantize_cpu
__global__ void quantize(const float* x, int* q, float* back, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float steps = floorf(x[i] / scale + 0.5f);
    q[i] = (int)steps;
    back[i] = steps * scale;
}
