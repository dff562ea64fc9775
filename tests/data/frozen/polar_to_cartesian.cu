#include <math.h>

void polar_to_xy_cpu(const float* radius, const float* theta, float* x, float* y, int n) {
    for (int i = 0; i < n; i++) {
        x[i] = radius[i] * cosf(theta[i]);
        y[i] = radius[i] * sinf(theta[i]);
    }
}

//dice: n = 25000 | 200 | 1; in radius[n]: uniform(0, 5), theta[n]: uniform(-3.14159, 3.14159); out x[n], y[n]
//dice: launch <<<cdiv(n, 256), 256>>>
__global__ void polar_to_xy(const float* radius, const float* theta, float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = radius[i] * cosf(theta[i]);
        y[i] = radius[i] * sinf(theta[i]);
    }
}
