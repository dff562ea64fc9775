// A bias per column.

//dice: rows = 4096 | 3, cols = 1024 | 77; in x[rows, cols], bias[cols]; out y[rows, cols]
//dice: launch <<<cdiv(rows * cols, 256), 256>>>; set scale = 0.5f; ref torch: x * scale + bias
__global__ void scale_bias(const float* x, const float* bias, float* y, float scale, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) y[i] = x[i] * scale + bias[i % cols];
}
