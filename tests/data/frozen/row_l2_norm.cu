#include <math.h>

void row_l2_norm_cpu(const float* x, float* norms, int rows, int dim) {
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int d = 0; d < dim; d++)
            sum += x[r * dim + d] * x[r * dim + d];
        norms[r] = sqrtf(sum);
    }
}

//dice: rows = 512 | 17 | 1, dim = 128 | 65 | 3; in x[rows, dim]; out norms[rows]; launch <<<cdiv(rows, 64), 64>>>
__global__ void row_l2_norm(const float* x, float* norms, int rows, int dim) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows)
        return;
    float sum = 0.0f;
    for (int d = 0; d < dim; d++)
        sum += x[r * dim + d] * x[r * dim + d];
    norms[r] = sqrtf(sum);
}
