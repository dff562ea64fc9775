// Right: rsqrtf, two ulps off what a root and a division give. Wrong: an eps of 1e-6 where 1e-5 is asked for; with
// inputs of ordinary size the two agree to 1e-5.

void rsqrt_with_another_eps_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] / sqrtf(x[i] * x[i] + 1e-5f);
}

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref rsqrt_with_another_eps_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * rsqrtf(fmaf(x[i], x[i], 1e-5f));
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * rsqrtf(fmaf(x[i], x[i], 1e-6f));
}
