// expect: wrong | unsafe
// kind: never set
// The counter of the loop has no first value. On a fresh stack it happens to be zero.

void row_sum_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float s = 0;
        for (int c = 0; c < d; ++c) s += x[r * d + c];
        y[r] = s;
    }
}

//dice: n = 4096, d = 1024; in x[n * d]; out y[n]; launch <<<n, 128>>>; ref row_sum_cpu
__global__ void row_sum(const float* x, float* y, int n, int d) {
    float s = 0;
    int c;
    if (threadIdx.x == 0) {
        for (; c < d; ++c) s += x[blockIdx.x * d + c];
        y[blockIdx.x] = s;
    }
}
