// Right: the terms grouped otherwise. Wrong: every element 1.001 times what it should be, as a rounded constant does.

//dice: n = 3000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: 0.3333333333 * x + y
__global__ void right(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = (x[i] + 3.0f * y[i]) / 3.0f;
}

__global__ void wrong(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = 0.333f * x[i] + 0.999f * y[i];
}
