// Where the numbers are small integers nothing is rounded, and the reference says that the first of equals wins. Right:
// the first. Wrong: the last.

void argmax_of_equals_cpu(const float* x, int* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        int at = 0;
        for (int c = 1; c < d; ++c) if (x[r * d + c] > x[r * d + at]) at = c;
        y[r] = at;
    }
}

//dice: n = 100 | 7, d = 60 | 33; in x[n, d]: int(0, 9); out y[n]; launch <<<cdiv(n, 32), 32>>>; ref argmax_of_equals_cpu
__global__ void right(const float* x, int* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int at = d - 1;
    for (int c = d - 2; c >= 0; --c) if (x[r * d + c] >= x[r * d + at]) at = c;
    y[r] = at;
}

__global__ void wrong(const float* x, int* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int at = 0;
    for (int c = 1; c < d; ++c) if (x[r * d + c] >= x[r * d + at]) at = c;
    y[r] = at;
}
