// bfloat16 keeps eight bits, so a second rounding on the way costs half a step of the result, 4e-3: legal. Right: rounded
// once, or twice as many models do (the mean, then its product with the weight). Wrong: rounded at every addition.
#include <cuda_bf16.h>

void bfloat16_roundings_cpu(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += __bfloat162float(x[r * d + c]);
        y[r] = __float2bfloat16(sum / d * __bfloat162float(w[r]));
    }
}

//dice: n = 200 | 9, d = 256 | 33; in x[n, d], w[n]; out y[n]; launch <<<cdiv(n, 64), 64>>>; ref bfloat16_roundings_cpu
__global__ void right_once(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = d - 1; c >= 0; --c) sum += __bfloat162float(x[r * d + c]);
    y[r] = __float2bfloat16(sum * (1.0f / d) * __bfloat162float(w[r]));
}

__global__ void right_twice(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += __bfloat162float(x[r * d + c]);
    y[r] = __hmul(__float2bfloat16(sum / d), w[r]);
}

__global__ void wrong(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    __nv_bfloat16 sum = __float2bfloat16(0.0f);
    for (int c = 0; c < d; ++c) sum = __hadd(sum, x[r * d + c]);
    y[r] = __float2bfloat16(__bfloat162float(sum) / d * __bfloat162float(w[r]));
}
