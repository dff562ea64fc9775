// A warp to a row, sixteen bytes at a time.

void gemv_cpu(const float* A, const float* x, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        float s = 0.f;
        for (int c = 0; c < cols; ++c) s += A[r * cols + c] * x[c];
        y[r] = s;
    }
}

//dice: rows = 1024 | 7 | 130, cols = 1024 | 64 | 4 * 33; in A[rows * cols], x[cols]; out y[rows]
//dice: launch <<<cdiv(rows, 8), 256>>>; ref gemv_cpu; bytes 4 * rows * cols + 4 * rows + 4 * cols
__global__ void gemv(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (warp >= rows) return;
    float sum = 0.f;
    if (cols % 4 == 0) {
        const float4* row = reinterpret_cast<const float4*>(A + (size_t)warp * cols);
        const float4* vec = reinterpret_cast<const float4*>(x);
        for (int i = lane; i < cols / 4; i += 32) {
            float4 a = row[i], v = vec[i];
            sum += a.x * v.x + a.y * v.y + a.z * v.z + a.w * v.w;
        }
    } else {
        for (int c = lane; c < cols; c += 32) sum += A[(size_t)warp * cols + c] * x[c];
    }
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (lane == 0) y[warp] = sum;
}
