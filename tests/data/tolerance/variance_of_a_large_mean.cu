// Mean 10 000, deviation 0.6: squares of 1e8 less the squared mean leave nothing of a variance of 0.3 in float. Right:
// two passes, or Welford's update. Wrong: one pass over sums of squares, off by several times the variance.

void variance_of_a_large_mean_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float mean = 0.0f, squares = 0.0f;
        for (int c = 0; c < d; ++c) mean += x[r * d + c];
        mean /= d;
        for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
        y[r] = squares / d;
    }
}

//dice: n = 120 | 7, d = 400 | 33; in x[n, d]: uniform(9999, 10001); out y[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref variance_of_a_large_mean_cpu
__global__ void right_two_passes(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) mean += x[r * d + c] - x[r * d];
    mean = x[r * d] + mean / d;
    for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    y[r] = squares / d;
}

__global__ void right_welford(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) {
        float off = x[r * d + c] - mean;
        mean += off / (c + 1);
        squares += off * (x[r * d + c] - mean);
    }
    y[r] = squares / d;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) {
        sum += x[r * d + c];
        squares += x[r * d + c] * x[r * d + c];
    }
    y[r] = squares / d - sum / d * (sum / d);
}
