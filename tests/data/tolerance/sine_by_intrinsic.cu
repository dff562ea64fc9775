// __sinf is off by 4e-7 within half a turn, whatever the result: near zero many ulps, but no more than its neighbours'
// rounding. Right: __sinf. Wrong: four terms of the series, good to 1e-3 at the ends.

//dice: n = 3000; in x[n]: uniform(-3, 3); out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: torch.sin(x)
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __sinf(x[i]);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], s = v * v;
    y[i] = v * (1.0f - s / 6.0f * (1.0f - s / 20.0f * (1.0f - s / 42.0f * (1.0f - s / 72.0f))));
}
