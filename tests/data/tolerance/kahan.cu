// A compensated sum is better than it must be and a plain one good enough. Right: both. Wrong: the correction has lost
// its minus sign, so each term is corrected by twice the one before.

void kahan_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += x[r * d + c];
        y[r] = sum;
    }
}

//dice: n = 100 | 7, d = 2000 | 33; in x[n, d]; out y[n]; launch <<<cdiv(n, 32), 32>>>; ref kahan_cpu
__global__ void right_compensated(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f, lost = 0.0f;
    for (int c = 0; c < d; ++c) {
        float term = x[r * d + c] - lost;
        float next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    y[r] = sum;
}

__global__ void right_plain(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += x[r * d + c];
    y[r] = sum;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f, lost = 0.0f;
    for (int c = 0; c < d; ++c) {
        float term = x[r * d + c] - lost;
        float next = sum + term;
        lost = (next - sum) + term;
        sum = next;
    }
    y[r] = sum;
}
