// Without the maximum taken off first, exp overflows for large inputs and the row is NaN. Right: the maximum is taken
// off, all exponents are at most zero. Wrong: it is not; for inputs near zero both agree to the last digits.

void softmax_without_maximum_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float top = x[r * d];
        for (int c = 1; c < d; ++c) top = fmaxf(top, x[r * d + c]);
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += expf(x[r * d + c] - top);
        for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c] - top) / sum;
    }
}

//dice: n = 100 | 3, d = 65 | 10; in x[n, d]; out y[n, d]; launch <<<cdiv(n, 32), 32>>>; ref softmax_without_maximum_cpu
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float top = -INFINITY, sum = 0.0f;
    for (int c = 0; c < d; ++c) {
        float value = x[r * d + c], higher = fmaxf(top, value);
        sum = sum * expf(top - higher) + expf(value - higher);
        top = higher;
    }
    for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c] - top) / sum;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += expf(x[r * d + c]);
    for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c]) / sum;
}
