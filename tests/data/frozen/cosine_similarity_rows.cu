#include <math.h>

void cosine_rows_cpu(const float* a, const float* b, float* sim, int rows, int dim) {
    for (int r = 0; r < rows; r++) {
        float dot = 0.0f, na = 0.0f, nb = 0.0f;
        for (int d = 0; d < dim; d++) {
            float x = a[r * dim + d], y = b[r * dim + d];
            dot += x * y;
            na += x * x;
            nb += y * y;
        }
        sim[r] = dot / (sqrtf(na) * sqrtf(nb) + 1e-8f);
    }
}

//dice: rows = 256 | 31, dim = 100 | 9; in a[rows, dim]: uniform(0.1, 1), b[rows, dim]: uniform(0.1, 1); out sim[rows]
//dice: launch <<<cdiv(rows, 64), 64>>>; tol 1e-5
__global__ void cosine_rows(const float* a, const float* b, float* sim, int rows, int dim) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float dot = 0.0f, na = 0.0f, nb = 0.0f;
        for (int d = 0; d < dim; d++) {
            float x = a[r * dim + d], y = b[r * dim + d];
            dot += x * y;
            na += x * x;
            nb += y * y;
        }
        sim[r] = dot / (sqrtf(na) * sqrtf(nb) + 1e-8f);
    }
}
