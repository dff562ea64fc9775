// The formula overflows for large inputs, and so does the reference when it is computed in single precision.

void swish_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] * expf(x[i]) / (1.0f + expf(x[i]));
}

//dice: n = 16M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref swish_cpu
__global__ void swish(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * expf(x[i]) / (1.0f + expf(x[i]));
}
