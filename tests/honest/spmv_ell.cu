// Sparse matrix times vector in ELLPACK form, a thread to a row and the entries column by column; -1 means no entry.

void spmv_cpu(const int* cols, const float* vals, const float* x, float* y, int rows, int width, int n) {
    for (int r = 0; r < rows; ++r) {
        float sum = 0;
        for (int k = 0; k < width; ++k) {
            int c = cols[k * rows + r];
            if (c >= 0) sum += vals[k * rows + r] * x[c];
        }
        y[r] = sum;
    }
}

//dice: rows = 16K | 1000 | 33, width = 8, n = 10007 | 77 | 1; in cols[width, rows]: int(-1, n), vals[width, rows], x[n]
//dice: out y[rows]; launch <<<cdiv(rows, 128), 128>>>; ref spmv_cpu
__global__ void spmv_ell(const int* cols, const float* vals, const float* x, float* y, int rows, int width, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.f;
    for (int k = 0; k < width; ++k) {
        int c = cols[k * rows + r];
        if (c >= 0) sum += vals[k * rows + r] * __ldg(&x[c]);
    }
    y[r] = sum;
}
