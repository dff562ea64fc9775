#include <math.h>

// log(cosh(d)) = |d| + log1p(exp(-2 |d|)) - log(2)
void logcosh_cpu(const float* a, const float* b, float* loss, int n) {
    for (int i = 0; i < n; i++) {
        float d = fabsf(a[i] - b[i]);
        loss[i] = d + log1pf(expf(-2.0f * d)) - 0.69314718f;
    }
}

//dice: n = 30000 | 777 | 33; in a[n], b[n]; out loss[n]; launch <<<cdiv(n, 256), 256>>>; tol 1e-4 1e-5
__global__ void logcosh(const float* a, const float* b, float* loss, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float d = fabsf(a[i] - b[i]);
        loss[i] = d + log1pf(expf(-2.0f * d)) - 0.69314718f;
    }
}
