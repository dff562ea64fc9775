// expect: wrong
// kind: integer overflow
// The sum is kept in an int. Small numbers do not show it.

void row_sum_cpu(const int* x, long long* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        long long s = 0;
        for (int c = 0; c < d; ++c) s += x[r * d + c];
        y[r] = s;
    }
}

//dice: n = 4096, d = 1024; in x[n * d]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref row_sum_cpu
__global__ void row_sum(const int* x, long long* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int s = 0;
    for (int c = 0; c < d; ++c) s += x[r * d + c];
    y[r] = s;
}
