// With a mean near zero nothing cancels, and one pass is as good as two. Right: one pass. Wrong: divided by d - 1, the
// other definition of a variance.

//dice: n = 120 | 7, d = 400 | 33; in x[n, d]: uniform(-1, 1); out y[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref torch: x.var(dim=1, unbiased=False)
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) {
        sum += x[r * d + c];
        squares += x[r * d + c] * x[r * d + c];
    }
    y[r] = squares / d - sum / d * (sum / d);
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) mean += x[r * d + c];
    mean /= d;
    for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    y[r] = squares / (d - 1);
}
