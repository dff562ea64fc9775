// log(1 + e^x) overflows for large x and loses all digits for very negative ones. Right: log1pf of the smaller
// exponential. Wrong: the formula as it stands.

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: F.softplus(x)
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) + log1pf(expf(-fabsf(x[i])));
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = logf(1.0f + expf(x[i]));
}
