// The version before the edit loses digits: its variance in one pass is off by a tenth. In double it is a good reference.
// Right: two passes, far nearer to the truth than what it replaces. Wrong: two passes, divided by d - 1.

//dice: n = 60 | 7, d = 200 | 33; in x[n, d]: uniform(999, 1001); out y[n]; launch <<<cdiv(n, 32), 32>>>
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) mean += x[r * d + c] - x[r * d];
    mean = x[r * d] + mean / d;
    for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    y[r] = squares / d;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) mean += x[r * d + c] - x[r * d];
    mean = x[r * d] + mean / d;
    for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    y[r] = squares / max(d - 1, 1);
}

__global__ void accepted(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) {
        sum += x[r * d + c];
        squares += x[r * d + c] * x[r * d + c];
    }
    y[r] = squares / d - sum / d * (sum / d);
}
