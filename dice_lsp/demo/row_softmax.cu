#include <cmath>
#include <cuda_runtime.h>

//dice: rows = 4096 | 64 | 7, cols = 1024 | 100 | 33; in x[rows, cols]; out y[rows, cols]
//dice: launch <<<cdiv(rows, 128), 128>>>; ref torch: torch.softmax(x, dim=1)
__global__ void row_softmax(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float m = x[row * cols];
    for (int j = 1; j < cols; j++)
        m = fmaxf(m, x[row * cols + j]);
    float sum = 0.0f;
    for (int j = 0; j < cols; j++)
        sum += expf(x[row * cols + j] - m);
    for (int j = 0; j < cols; j++)
        y[row * cols + j] = expf(x[row * cols + j] - m) / sum;
}
