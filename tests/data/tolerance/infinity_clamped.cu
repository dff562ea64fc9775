// An infinity in gives one out. Right: it does, by another grouping of the terms. Wrong: the result is clamped to the
// largest float "to be safe", which changes no finite result.

void infinity_clamped_cpu(const float* x, float* y, float a, int n) {
    for (int i = 0; i < n; ++i) y[i] = a * x[i] + x[i];
}

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref infinity_clamped_cpu
__global__ void right(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (a + 1.0f) * x[i];
}

__global__ void wrong(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fminf(fmaxf(a * x[i] + x[i], -3.402823466e38f), 3.402823466e38f);
}
