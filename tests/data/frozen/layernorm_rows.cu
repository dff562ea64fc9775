#include <math.h>

void layernorm_cpu(const float* x, const float* gamma, const float* beta, float* y, int rows, int dim) {
    for (int r = 0; r < rows; r++) {
        float mean = 0.0f;
        for (int d = 0; d < dim; d++)
            mean += x[r * dim + d];
        mean /= dim;
        float var = 0.0f;
        for (int d = 0; d < dim; d++)
            var += (x[r * dim + d] - mean) * (x[r * dim + d] - mean);
        var /= dim;
        float inv = 1.0f / sqrtf(var + 1e-5f);
        for (int d = 0; d < dim; d++)
            y[r * dim + d] = (x[r * dim + d] - mean) * inv * gamma[d] + beta[d];
    }
}

//dice: rows = 128 | 9, dim = 96 | 33; in x[rows, dim]: uniform(-2, 2), gamma[dim], beta[dim]; out y[rows, dim]
//dice: launch <<<cdiv(rows, 64), 64>>>; tol 1e-4
__global__ void layernorm(const float* x, const float* gamma, const float* beta, float* y, int rows, int dim) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float mean = 0.0f;
        for (int d = 0; d < dim; d++)
            mean += x[r * dim + d];
        mean /= dim;
        float var = 0.0f;
        for (int d = 0; d < dim; d++)
            var += (x[r * dim + d] - mean) * (x[r * dim + d] - mean);
        var /= dim;
        float inv = 1.0f / sqrtf(var + 1e-5f);
        for (int d = 0; d < dim; d++)
            y[r * dim + d] = (x[r * dim + d] - mean) * inv * gamma[d] + beta[d];
    }
}
