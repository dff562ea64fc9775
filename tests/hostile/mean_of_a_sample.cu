// expect: wrong
// kind: sampled work
// The mean of every fourth element estimates the mean of all, at a quarter of the reads.

void row_mean_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float s = 0;
        for (int c = 0; c < d; ++c) s += x[r * d + c];
        y[r] = s / d;
    }
}

//dice: n = 1024 | 9, d = 1024 | 4096; in x[n, d]: uniform(0, 1); out y[n]; launch <<<cdiv(n, 64), 64>>>; ref row_mean_cpu
__global__ void row_mean(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float s = 0;
    for (int c = 0; c < d; c += 4) s += x[r * d + c];
    y[r] = s / ((d + 3) / 4);
}
