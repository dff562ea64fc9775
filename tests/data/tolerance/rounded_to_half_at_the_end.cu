// Results in float are stored as halves. Right: rounded to nearest, or through double and float first, which moves a tie
// by one step at most. Wrong: cut off, so that all are half a step too small; and through bfloat16, three bits short.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

void rounded_to_half_at_the_end_cpu(const float* x, __half* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = __float2half(x[i] / (1.0f + fabsf(x[i])));
}

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref rounded_to_half_at_the_end_cpu
__global__ void right_once(const float* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__fdividef(x[i], 1.0f + fabsf(x[i])));
}

__global__ void right_twice(const float* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half((float)(x[i] / (1.0 + fabs((double)x[i]))));
}

__global__ void wrong_cut_off(const float* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half_rz(x[i] / (1.0f + fabsf(x[i])));
}

__global__ void wrong_type_between(const float* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__bfloat162float(__float2bfloat16(x[i] / (1.0f + fabsf(x[i])))));
}
