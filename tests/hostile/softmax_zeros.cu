// expect: wrong
// kind: constant for every input
// Every element of a wide softmax is far below any fixed tolerance, so zeros pass an `allclose`.
#include <math.h>

void softmax_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float top = x[r * d], total = 0;
        for (int c = 1; c < d; ++c) top = x[r * d + c] > top ? x[r * d + c] : top;
        for (int c = 0; c < d; ++c) total += expf(x[r * d + c] - top);
        for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c] - top) / total;
    }
}

//dice: n = 4096 | 3 | 2, d = 4096 | 1000 | 16384; in x[n, d]; out y[n, d]; launch <<<n, 128>>>; ref softmax_cpu
__global__ void softmax(const float* x, float* y, int n, int d) {
    for (int c = threadIdx.x; c < d; c += blockDim.x) y[blockIdx.x * d + c] = 0.0f;
}
