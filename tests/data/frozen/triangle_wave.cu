#include <math.h>

// phase in steps of 1/16, period 4: every value is exact
void triangle_cpu(float* wave, float period, int n) {
    for (int i = 0; i < n; i++) {
        float t = fmodf(i * 0.0625f, period) / period;
        wave[i] = t < 0.5f ? 4.0f * t - 1.0f : 3.0f - 4.0f * t;
    }
}

//dice: n = 20000 | 65 | 1; out wave[n]; set period = 4.0; launch <<<cdiv(n, 256), 256>>>
__global__ void triangle(float* wave, float period, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float t = fmodf(i * 0.0625f, period) / period;
        wave[i] = t < 0.5f ? 4.0f * t - 1.0f : 3.0f - 4.0f * t;
    }
}
