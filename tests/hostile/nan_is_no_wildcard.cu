// expect: wrong
// kind: NaN as wildcard
// Where the reference has a NaN, anything was thought to be good enough.
#include <math.h>

void root_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = sqrtf(x[i]);
}

//dice: n = 1M | 1000 | 33; in x[n]: uniform(-1, 1); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref root_cpu
__global__ void root(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : sqrtf(x[i]);
}
