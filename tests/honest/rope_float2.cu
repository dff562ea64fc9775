// Rotary embedding of pairs, positions as integers, in place.
#include <math.h>

void rope_cpu(float2* q, const int* pos, int tokens, int heads, int half_dim) {
    for (int t = 0; t < tokens; ++t)
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < half_dim; ++d) {
                float theta = pos[t] * powf(10000.0f, -(float)d / half_dim);
                float2& v = q[(t * heads + h) * half_dim + d];
                float x = v.x * cosf(theta) - v.y * sinf(theta);
                v.y = v.x * sinf(theta) + v.y * cosf(theta);
                v.x = x;
            }
}

//dice: tokens = 256 | 7 | 1, heads = 8 | 3, half_dim = 32 | 16; io q[tokens, heads, half_dim]; in pos[tokens]: int(0, 512)
//dice: launch <<<{tokens, heads}, half_dim>>>; ref rope_cpu; tol 1e-3 1e-3
__global__ void rope(float2* q, const int* pos, int tokens, int heads, int half_dim) {
    const int t = blockIdx.x, h = blockIdx.y, d = threadIdx.x;
    float theta = pos[t] * powf(10000.0f, -(float)d / half_dim);
    float s, c;
    sincosf(theta, &s, &c);
    float2* p = q + (t * heads + h) * half_dim + d;
    float2 v = *p;
    *p = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
