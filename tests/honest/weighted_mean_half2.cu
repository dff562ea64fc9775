// Arithmetic in packed halves: a weighted mean of each pair with a constant, one fused operation for two numbers.
#include <cuda_fp16.h>

//dice: n = 64K | 1000 | 34; in a[n / 2], b[n / 2]; out y[n / 2]; launch <<<cdiv(n / 2, 128), 128>>>; ref torch: 0.75 * a + 0.25 * b
__global__ void mix(const half2* a, const half2* b, half2* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 2) return;
    const half2 wa = __float2half2_rn(0.75f), wb = __float2half2_rn(0.25f);
    y[i] = __hfma2(wa, a[i], __hmul2(wb, b[i]));
}
