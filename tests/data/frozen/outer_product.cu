void outer_cpu(const float* u, const float* v, float* m, int rows, int cols) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            m[i * cols + j] = u[i] * v[j];
}

//dice: rows = 200 | 33 | 1, cols = 150 | 17 | 1; in u[rows], v[cols]; out m[rows, cols]
//dice: launch <<<{cdiv(cols, 16), cdiv(rows, 16)}, {16, 16}>>>
__global__ void outer(const float* u, const float* v, float* m, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols)
        m[i * cols + j] = u[i] * v[j];
}
