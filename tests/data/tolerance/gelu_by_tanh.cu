// Here the reference is the tanh formula. Right: the same through a sigmoid, which is equal in exact arithmetic. Wrong:
// the exact GELU.

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: F.gelu(x, approximate='tanh')
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = v / (1.0f + expf(-1.5957691f * v * fmaf(0.044715f * v, v, 1.0f)));
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
