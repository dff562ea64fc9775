// The mean of 3000 numbers divided by 2999 is off by 3e-4 of itself. Right: a product with 1 / d, one rounding more.
// Wrong: d - 1.

void mean_by_one_less_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += x[r * d + c];
        y[r] = sum / d;
    }
}

//dice: n = 40, d = 3000; in x[n, d]; out y[n]; launch <<<cdiv(n, 32), 32>>>; ref mean_by_one_less_cpu
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += x[r * d + c] * (1.0f / d);
    y[r] = sum;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += x[r * d + c];
    y[r] = sum / max(d - 1, 1);
}
