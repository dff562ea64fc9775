#include <math.h>

void logsumexp_cpu(const float* logits, float* lse, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        float m = logits[r * cols];
        for (int c = 1; c < cols; c++)
            m = fmaxf(m, logits[r * cols + c]);
        float s = 0.0f;
        for (int c = 0; c < cols; c++)
            s += expf(logits[r * cols + c] - m);
        lse[r] = m + logf(s);
    }
}

//dice: rows = 400 | 13 | 1, cols = 150 | 33 | 1; in logits[rows, cols]; out lse[rows]; launch <<<cdiv(rows, 64), 64>>>
__global__ void logsumexp(const float* logits, float* lse, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float m = logits[r * cols];
        for (int c = 1; c < cols; c++)
            m = fmaxf(m, logits[r * cols + c]);
        float s = 0.0f;
        for (int c = 0; c < cols; c++)
            s += expf(logits[r * cols + c] - m);
        lse[r] = m + logf(s);
    }
}
