// Two inputs, one of them overwritten; a scalar nobody sets.

void saxpy_cpu(int n, float a, const float* x, float* y) {
    for (int i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}

//dice: n = 16M | 1000003; in x[n]; io y[n]; launch <<<cdiv(n, 256), 256>>>; ref saxpy_cpu; bytes 12*n
__global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
