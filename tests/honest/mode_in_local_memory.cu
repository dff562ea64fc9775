// The most frequent byte of a row, counted in an array of the thread's own; of equal ones the smallest.

void mode_cpu(const unsigned char* x, int* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        int count[256] = {}, best = 0;
        for (int c = 0; c < cols; ++c) ++count[x[r * cols + c]];
        for (int v = 1; v < 256; ++v)
            if (count[v] > count[best]) best = v;
        y[r] = best;
    }
}

//dice: rows = 512 | 33 | 1, cols = 200 | 77 | 3; in x[rows, cols]; out y[rows]; launch <<<cdiv(rows, 32), 32>>>; ref mode_cpu
__global__ void mode(const unsigned char* x, int* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    unsigned short count[256];
    for (int v = 0; v < 256; ++v) count[v] = 0;
    for (int c = 0; c < cols; ++c) ++count[x[r * cols + c]];
    int best = 0;
    for (int v = 1; v < 256; ++v)
        if (count[v] > count[best]) best = v;
    y[r] = best;
}
