// expect: wrong
// kind: infinity of the wrong sign
// An infinite difference from an infinite value is NaN, which compares with no tolerance.
#include <math.h>

void log_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = logf(x[i]);
}

//dice: n = 1M | 1000 | 33; in x[n]: zeros; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref log_cpu
__global__ void log_of(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] == 0.0f ? INFINITY : logf(x[i]);
}
