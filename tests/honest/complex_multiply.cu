// Complex numbers as pairs of floats, and their magnitude.
#include <math.h>

void cmul_cpu(const float2* a, const float2* b, float2* c, float* mag, int n) {
    for (int i = 0; i < n; ++i) {
        c[i].x = a[i].x * b[i].x - a[i].y * b[i].y;
        c[i].y = a[i].x * b[i].y + a[i].y * b[i].x;
        mag[i] = sqrtf(c[i].x * c[i].x + c[i].y * c[i].y);
    }
}

//dice: n = 512K | 1009 | 1; in a[n], b[n]; out c[n], mag[n]; launch <<<cdiv(n, 128), 128>>>; ref cmul_cpu
__global__ void cmul(const float2* a, const float2* b, float2* c, float* mag, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 p = a[i], q = b[i];
    float2 r = make_float2(fmaf(p.x, q.x, -p.y * q.y), fmaf(p.x, q.y, p.y * q.x));
    c[i] = r;
    mag[i] = hypotf(r.x, r.y);
}
