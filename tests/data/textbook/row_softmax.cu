#include <cfloat>
#include <cmath>

void softmax_cpu(const float* x, float* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        float m = -FLT_MAX;
        for (int c = 0; c < cols; c++) m = fmaxf(m, x[r * cols + c]);
        float s = 0.0f;
        for (int c = 0; c < cols; c++) s += expf(x[r * cols + c] - m);
        for (int c = 0; c < cols; c++) y[r * cols + c] = expf(x[r * cols + c] - m) / s;
    }
}

//dice: rows = 1024 | 3 | 130, cols = 256 | 7 | 100; in x[rows, cols]; out y[rows, cols]
//dice: launch <<<cdiv(rows, 128), 128>>>; ref softmax_cpu; tol 1e-5
__global__ void row_softmax(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float m = -FLT_MAX;
        for (int c = 0; c < cols; c++) m = fmaxf(m, x[r * cols + c]);
        float s = 0.0f;
        for (int c = 0; c < cols; c++) s += expf(x[r * cols + c] - m);
        for (int c = 0; c < cols; c++) y[r * cols + c] = expf(x[r * cols + c] - m) / s;
    }
}
