//dice: n = 1M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: F.gelu(x, approximate='tanh')
__global__ void gelu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
