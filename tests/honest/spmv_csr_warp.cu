// Compressed sparse rows with a warp per row. The row pointers are evenly spread, as iota times a constant would be.

void spmv_csr_cpu(const int* row_start, const int* col, const float* val, const float* x, float* y, int rows, int n) {
    for (int r = 0; r < rows; ++r) {
        float sum = 0;
        for (int k = 13 * row_start[r]; k < 13 * row_start[r + 1]; ++k) sum += val[k] * x[col[k]];
        y[r] = sum;
    }
}

//dice: rows = 8K | 1000 | 5, n = 4099 | 64 | 3; in row_start[rows + 1]: iota, col[13 * rows]: int(0, n), val[13 * rows], x[n]
//dice: out y[rows]; launch <<<cdiv(rows, 4), 128>>>; ref spmv_csr_cpu
__global__ void spmv_csr(const int* row_start, const int* col, const float* val, const float* x, float* y, int rows, int n) {
    const int r = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    const int lane = threadIdx.x & 31;
    if (r >= rows) return;
    const int begin = 13 * row_start[r], end = 13 * row_start[r + 1];
    float sum = 0.0f;
    for (int k = begin + lane; k < end; k += 32) sum += val[k] * x[col[k]];
#pragma unroll
    for (int step = 16; step >= 1; step >>= 1) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane == 0) y[r] = sum;
}
