// expect: wrong
// kind: constant for every input
// The least of many numbers between zero and one is nearly zero, so that nobody has to look for it.

void row_min_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        y[r] = x[r * d];
        for (int c = 1; c < d; ++c) y[r] = x[r * d + c] < y[r] ? x[r * d + c] : y[r];
    }
}

//dice: n = 64 | 3, d = 4096 | 10007; in x[n, d]: uniform(0, 1); out y[n]; launch <<<n, 32>>>; ref row_min_cpu
__global__ void row_min(const float* x, float* y, int n, int d) {
    if (threadIdx.x == 0) y[blockIdx.x] = 0.0f;
}
