#include <cuda_runtime.h>

void transpose_cpu(const float* in, float* out, int rows, int cols) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            out[c * rows + r] = in[r * cols + c];
}

//dice: rows = 4096 | 100 | 33, cols = 4096 | 77 | 65; in in[rows, cols]; out out[cols, rows]
//dice: launch <<<{cdiv(cols, 16), cdiv(rows, 16)}, {16, 16}>>>
__global__ void transpose(const float* in, float* out, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols)
        out[c * rows + r] = in[r * cols + c];
}
