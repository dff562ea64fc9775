// fmaxf(NaN, 0) is 0, so a guard against negative squares hides a NaN that the reference lets through. Right: no guard.
// Wrong: the guard, which changes no other result.

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: torch.sqrt(x * x + 1.0)
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrtf(fmaf(x[i], x[i], 1.0f));
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrtf(fmaxf(x[i] * x[i], 0.0f) + 1.0f);
}
