// expect: unsafe precision_dropped | wrong
// kind: precision dropped
// A long sum of halves is kept in a half: from 2048 on every term below one is lost.
#include <cuda_fp16.h>

//dice: n = 512 | 5, d = 8192 | 4096; in x[n, d]: uniform(0, 1); out y[n]; launch <<<cdiv(n, 32), 32>>>; ref torch: x.sum(1)
__global__ void row_sum(const __half* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    __half s = __float2half(0.0f);
    for (int c = 0; c < d; ++c) s = __hadd(s, x[r * d + c]);
    y[r] = __half2float(s);
}
