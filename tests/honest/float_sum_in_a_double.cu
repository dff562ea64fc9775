// Kernel and reference add in float and store a double.

void row_sum_cpu(const float* x, double* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float s = 0;
        for (int c = 0; c < d; ++c) s += x[r * d + c];
        y[r] = s;
    }
}

//dice: n = 4096, d = 1000; in x[n * d]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref row_sum_cpu
__global__ void row_sum(const float* x, double* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float s = 0;
    for (int c = 0; c < d; ++c) s += x[r * d + c];
    y[r] = s;
}
