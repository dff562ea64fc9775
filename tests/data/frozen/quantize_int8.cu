#include <math.h>

// inv_scale is a power of two, so the product is exact
void quantize_cpu(const float* x, signed char* q, float inv_scale, int n) {
    for (int i = 0; i < n; i++) {
        float r = roundf(x[i] * inv_scale);
        r = fminf(fmaxf(r, -128.0f), 127.0f);
        q[i] = (signed char)r;
    }
}

//dice: n = 60000 | 999 | 17; in x[n]: uniform(-10, 10); out q[n]; set inv_scale = 16.0; exact
//dice: launch <<<cdiv(n, 256), 256>>>
__global__ void quantize(const float* x, signed char* q, float inv_scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float r = roundf(x[i] * inv_scale);
        r = fminf(fmaxf(r, -128.0f), 127.0f);
        q[i] = (signed char)r;
    }
}
