// log(1 + x) for x near 1e-6: 1 + x has lost most of x. Right: log1pf. Wrong: logf(1 + x), off by up to a twentieth.

void log_of_one_and_a_little_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = log1pf(x[i]);
}

//dice: n = 3000; in x[n]: uniform(1e-7, 1e-5); out y[n]; launch <<<cdiv(n, 128), 128>>>; ref log_of_one_and_a_little_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * (1.0f - 0.5f * x[i]);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = logf(1.0f + x[i]);
}
