// SwiGLU on packed halves, two at a time, computed in single precision.
#include <cuda_fp16.h>

//dice: n = 1M | 4096 | 66; in gate[n / 2], up[n / 2]; out y[n / 2]; launch <<<cdiv(n / 2, 256), 256>>>
//dice: ref torch: F.silu(gate) * up
__global__ void silu_mul(const __half2* gate, const __half2* up, __half2* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 2) return;
    float2 g = __half22float2(gate[i]);
    float2 u = __half22float2(up[i]);
    g.x = g.x / (1.0f + __expf(-g.x)) * u.x;
    g.y = g.y / (1.0f + __expf(-g.y)) * u.y;
    y[i] = __float22half2_rn(g);
}
