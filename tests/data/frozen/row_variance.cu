void row_variance_cpu(const float* x, float* var, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        float mean = 0.0f;
        for (int c = 0; c < cols; c++)
            mean += x[r * cols + c];
        mean /= cols;
        float acc = 0.0f;
        for (int c = 0; c < cols; c++) {
            float d = x[r * cols + c] - mean;
            acc += d * d;
        }
        var[r] = acc / cols;
    }
}

//dice: rows = 300 | 33 | 1, cols = 200 | 17 | 2; in x[rows, cols]; out var[rows]; launch <<<cdiv(rows, 64), 64>>>; tol 1e-4
__global__ void row_variance(const float* x, float* var, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float mean = 0.0f;
        for (int c = 0; c < cols; c++)
            mean += x[r * cols + c];
        mean /= cols;
        float acc = 0.0f;
        for (int c = 0; c < cols; c++) {
            float d = x[r * cols + c] - mean;
            acc += d * d;
        }
        var[r] = acc / cols;
    }
}
