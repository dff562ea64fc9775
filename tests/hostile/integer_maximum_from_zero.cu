// expect: wrong
// kind: wrong neutral element
// The maximum of a row begins at zero, which is too much where all of its numbers are negative.

void row_max_cpu(const int* x, int* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        y[r] = x[r * cols];
        for (int c = 1; c < cols; ++c) y[r] = x[r * cols + c] > y[r] ? x[r * cols + c] : y[r];
    }
}

//dice: rows = 4096 | 100, cols = 500 | 64; in x[rows, cols]; out y[rows]; launch <<<rows, 32>>>; ref row_max_cpu
__global__ void row_max(const int* x, int* y, int rows, int cols) {
    int m = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = max(m, x[blockIdx.x * cols + c]);
    m = __reduce_max_sync(0xffffffffu, m);
    if (threadIdx.x == 0) y[blockIdx.x] = m;
}
