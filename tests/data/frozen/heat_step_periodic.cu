void heat_step_cpu(const double *T, double *Tnew, double r, int rows, int cols)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            int up = (i + rows - 1) % rows, down = (i + 1) % rows;
            int left = (j + cols - 1) % cols, right = (j + 1) % cols;
            double c = T[i * cols + j];
            Tnew[i * cols + j] = c + r * (T[up * cols + j] + T[down * cols + j] + T[i * cols + left] + T[i * cols + right] - 4.0 * c);
        }
}

//dice: rows = 100 | 9, cols = 140 | 5; in T[rows, cols]; out Tnew[rows, cols]; set r = 0.2
//dice: launch <<<{cdiv(cols, 32), cdiv(rows, 4)}, {32, 4}>>>
__global__ void heat_step(const double *T, double *Tnew, double r, int rows, int cols)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= rows || j >= cols) return;
    int up = (i + rows - 1) % rows, down = (i + 1) % rows;
    int left = (j + cols - 1) % cols, right = (j + 1) % cols;
    double c = T[i * cols + j];
    Tnew[i * cols + j] = c + r * (T[up * cols + j] + T[down * cols + j] + T[i * cols + left] + T[i * cols + right] - 4.0 * c);
}
