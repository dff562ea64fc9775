// Where all numbers are denormal, the spacing of denormals is the whole precision. Right: they are kept, one step off at
// most. Wrong: what is below the normal range is flushed to zero, as -ftz=true would, and every result is lost.

void denormals_cpu(const float* x, float* y, float a, int n) {
    for (int i = 0; i < n; ++i) y[i] = a * x[i];
}

//dice: n = 3000; in x[n]: uniform(1e-41, 1e-39); out y[n]; launch <<<cdiv(n, 128), 128>>>; set a = 1.7f; ref denormals_cpu
__global__ void right(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 0.7f * x[i];
}

__global__ void wrong(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = fabsf(x[i]) < 1.17549435e-38f ? 0.0f : x[i];
    y[i] = a * value;
}
