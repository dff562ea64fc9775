void dequantize_cpu(const unsigned char *q, const float *scale, const int *zero, float *x, int rows, int cols)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            x[r * cols + c] = scale[r] * (float)((int)q[r * cols + c] - zero[r]);
}

//dice: rows = 96 | 7, cols = 300 | 33; in q[rows, cols], scale[rows], zero[rows]: int(0, 256); out x[rows, cols]
//dice: launch <<<{cdiv(cols, 32), cdiv(rows, 8)}, {32, 8}>>>
__global__ void dequantize(const unsigned char *q, const float *scale, const int *zero, float *x, int rows, int cols)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols)
        x[r * cols + c] = scale[r] * (float)((int)q[r * cols + c] - zero[r]);
}
