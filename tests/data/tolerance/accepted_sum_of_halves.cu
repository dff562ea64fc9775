// The version before the edit sums in half, and halves cannot be run in double: it is all there is to compare with. A
// sum of 100 halves may be off by 2e-3 of what it is made of. Right: summed in float, better than before. Wrong: 5 % more.
#include <cuda_fp16.h>

//dice: n = 200 | 9, d = 100 | 33; in x[n, d]; out y[n]; launch <<<cdiv(n, 64), 64>>>
__global__ void right(const __half* x, __half* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += __half2float(x[r * d + c]);
    y[r] = __float2half(sum);
}

__global__ void wrong(const __half* x, __half* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += __half2float(x[r * d + c]);
    y[r] = __float2half(1.05f * sum);
}

__global__ void accepted(const __half* x, __half* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    __half sum = __float2half(0.0f);
    for (int c = 0; c < d; ++c) sum = __hadd(sum, x[r * d + c]);
    y[r] = sum;
}
