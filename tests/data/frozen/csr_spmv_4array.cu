// CSR with separate begin and end of each row; rows may overlap.
void spmv_cpu(const int* row_begin, const int* row_end, const int* col, const float* val, const float* x, float* y, int rows, int nnz) {
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int k = row_begin[r]; k < row_end[r]; k++)
            sum += val[k] * x[col[k]];
        y[r] = sum;
    }
}

//dice: rows = 600 | 33 | 1, nnz = 120 | 20 | 4
//dice: in row_begin[rows]: int(0, nnz / 2), row_end[rows]: int(nnz / 2, nnz + 1), col[nnz]: int(0, rows), val[nnz], x[rows]
//dice: out y[rows]; launch <<<cdiv(rows, 128), 128>>>; tol 1e-4
__global__ void spmv(const int* row_begin, const int* row_end, const int* col, const float* val, const float* x, float* y, int rows, int nnz) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float sum = 0.0f;
        for (int k = row_begin[r]; k < row_end[r]; k++)
            sum += val[k] * x[col[k]];
        y[r] = sum;
    }
}
