// Mean and variance of a row in one pass by Welford's update, merged over the lanes by Chan's formula.
#include <math.h>

void layernorm_cpu(const float* x, float* y, float* mean, float* rstd, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        float m = 0, v = 0;
        for (int c = 0; c < cols; ++c) m += x[r * cols + c];
        m /= cols;
        for (int c = 0; c < cols; ++c) v += (x[r * cols + c] - m) * (x[r * cols + c] - m);
        float s = 1.0f / sqrtf(v / cols + 1e-5f);
        mean[r] = m;
        rstd[r] = s;
        for (int c = 0; c < cols; ++c) y[r * cols + c] = (x[r * cols + c] - m) * s;
    }
}

//dice: rows = 2048 | 9 | 1, cols = 512 | 129 | 33; in x[rows * cols]; out y[rows * cols], mean[rows], rstd[rows]
//dice: launch <<<cdiv(rows, 4), dim3(32, 4)>>>; ref layernorm_cpu
__global__ void layernorm(const float* x, float* y, float* mean, float* rstd, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* in = x + row * cols;
    float m = 0.0f, m2 = 0.0f, count = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) {
        count += 1.0f;
        float delta = in[c] - m;
        m += delta / count;
        m2 += delta * (in[c] - m);
    }
    for (int lanes = 16; lanes >= 1; lanes >>= 1) {
        float om = __shfl_xor_sync(0xffffffff, m, lanes);
        float om2 = __shfl_xor_sync(0xffffffff, m2, lanes);
        float oc = __shfl_xor_sync(0xffffffff, count, lanes);
        float both = count + oc;
        if (both > 0.0f) {
            float delta = om - m;
            m = (count * m + oc * om) / both;
            m2 += om2 + delta * delta * count * oc / both;
        }
        count = both;
    }
    float s = rsqrtf(m2 / cols + 1e-5f);
    for (int c = threadIdx.x; c < cols; c += 32) y[row * cols + c] = (in[c] - m) * s;
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
}
