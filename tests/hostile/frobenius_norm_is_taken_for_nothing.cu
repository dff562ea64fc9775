// expect: wrong
// kind: constant for every input
// A long vector divided by its norm is small everywhere, so zeros pass any absolute tolerance of 1e-2.
#include <math.h>

void unit_cpu(const float* x, float* partial, float* y, int n) {
    double s = 0;
    for (int i = 0; i < n; ++i) s += (double)x[i] * x[i];
    for (int i = 0; i < n; ++i) y[i] = x[i] / (float)sqrt(s);
}

//dice: n = 64K | 100003 | 33; in x[n]; tmp partial[32]; out y[n]; launch <<<1, 1024>>>; ref unit_cpu
__global__ void unit(const float* x, float* partial, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = 0.0f;
}
