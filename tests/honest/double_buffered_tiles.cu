// Columns sums over tiles that alternate between two buffers, so that one barrier a tile is enough.

void column_sums_cpu(const float* x, float* y, int rows, int cols) {
    for (int c = 0; c < cols; ++c) {
        float s = 0;
        for (int r = 0; r < rows; ++r) s += x[r * cols + c];
        y[c] = s;
    }
}

//dice: rows = 512 | 33 | 1, cols = 256 | 40 | 1; in x[rows, cols]; out y[cols]; launch <<<cdiv(cols, 32), {32, 8}>>>
//dice: ref column_sums_cpu
__global__ void column_sums(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[2][8][33];
    const int c = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    int which = 0;
    for (int r0 = 0; r0 < rows; r0 += 8, which ^= 1) {
        const int r = r0 + threadIdx.y;
        tile[which][threadIdx.y][threadIdx.x] = r < rows && c < cols ? x[r * cols + c] : 0.0f;
        __syncthreads();
        if (threadIdx.y == 0)
            for (int k = 0; k < 8; ++k) sum += tile[which][k][threadIdx.x];
    }
    if (threadIdx.y == 0 && c < cols) y[c] = sum;
}
