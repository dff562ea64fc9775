// One query per head against a cache of keys and values, with a running maximum as flash attention keeps it.
#include <math.h>

void attend_cpu(const float* q, const float* k, const float* v, float* o, int heads, int len) {
    for (int h = 0; h < heads; ++h) {
        float top = -INFINITY, sum = 0, acc[64] = {};
        for (int t = 0; t < len; ++t) {
            float s = 0;
            for (int d = 0; d < 64; ++d) s += q[h * 64 + d] * k[(h * len + t) * 64 + d];
            top = fmaxf(top, s / 8);
        }
        for (int t = 0; t < len; ++t) {
            float s = 0;
            for (int d = 0; d < 64; ++d) s += q[h * 64 + d] * k[(h * len + t) * 64 + d];
            float p = expf(s / 8 - top);
            sum += p;
            for (int d = 0; d < 64; ++d) acc[d] += p * v[(h * len + t) * 64 + d];
        }
        for (int d = 0; d < 64; ++d) o[h * 64 + d] = acc[d] / sum;
    }
}

//dice: heads = 16 | 3 | 1, len = 256 | 33 | 1; in q[heads, 64]: uniform(-1, 1), k[heads, len, 64]: uniform(-1, 1)
//dice: in v[heads, len, 64]; out o[heads, 64]; launch <<<heads, 64>>>; ref attend_cpu
__global__ void attend(const float* q, const float* k, const float* v, float* o, int heads, int len) {
    __shared__ float part[2];
    const int h = blockIdx.x, d = threadIdx.x;
    const float mine = q[h * 64 + d];
    float top = -INFINITY, sum = 0.0f, acc = 0.0f;
    for (int t = 0; t < len; ++t) {
        float s = mine * k[(h * len + t) * 64 + d];
        for (int step = 16; step > 0; step >>= 1) s += __shfl_xor_sync(0xffffffff, s, step);
        if (d % 32 == 0) part[d / 32] = s;
        __syncthreads();
        s = (part[0] + part[1]) * 0.125f;
        __syncthreads();
        const float bigger = fmaxf(top, s);
        const float old = expf(top - bigger), p = expf(s - bigger);
        sum = sum * old + p;
        acc = acc * old + p * v[(h * len + t) * 64 + d];
        top = bigger;
    }
    o[h * 64 + d] = acc / sum;
}
