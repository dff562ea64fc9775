// Right: Horner's scheme, and powers one by one, whose roundings differ. Wrong: 1/6 is written as 0.1667.

void polynomial_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) {
        float v = x[i];
        y[i] = 1.0f + v + v * v / 2.0f + v * v * v / 6.0f + v * v * v * v / 24.0f;
    }
}

//dice: n = 3000; in x[n]: uniform(-2, 2); out y[n]; launch <<<cdiv(n, 128), 128>>>; ref polynomial_cpu
__global__ void right_horner(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = fmaf(v, fmaf(v, fmaf(v, fmaf(v, 1.0f / 24.0f, 1.0f / 6.0f), 0.5f), 1.0f), 1.0f);
}

__global__ void right_powers(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], term = 1.0f, sum = 1.0f;
    for (int k = 1; k <= 4; ++k) {
        term *= v / k;
        sum += term;
    }
    y[i] = sum;
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 1.0f + v * (1.0f + v * (0.5f + v * (0.1667f + v * 0.0416667f)));
}
