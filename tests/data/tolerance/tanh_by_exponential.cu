// 1 - 2 / (e^2x + 1) is off by a rounding of 1, which is more than an ulp of a small result but no more than the
// rounding of its neighbours. Right: that form, and tanhf. Wrong: the first three terms of the series.

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: torch.tanh(x)
__global__ void right_exponential(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.0f - 2.0f / (expf(2.0f * x[i]) + 1.0f);
}

__global__ void right_tanhf(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tanhf(x[i]);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = fminf(fmaxf(x[i], -1.2f), 1.2f), s = v * v;
    y[i] = v * (1.0f - s * (1.0f / 3.0f - s * (2.0f / 15.0f)));
}
