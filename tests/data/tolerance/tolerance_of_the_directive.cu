// The user knows better: `tol 1e-2` allows the eleven bits of a hardware approximation. Right: off by 4e-4. Wrong: off by
// two hundredths.

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: torch.sigmoid(x); tol 1e-2
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.0004f / (1.0f + expf(-x[i]));
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fminf(fmaxf(0.25f * x[i] + 0.5f, 0.0f), 1.0f);
}
