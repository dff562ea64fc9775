// expect: unsafe precision_dropped | wrong
// kind: precision dropped
// One global factor is computed in half precision, and every element inherits the same relative error.
#include <cuda_fp16.h>

//dice: n = 512 | 9 | 65, d = 1024 | 100 | 33; in x[n, d]; out y[n, d]; launch <<<n, 32>>>
//dice: ref torch: x / torch.sqrt((x * x).sum(1, keepdim=True))
__global__ void l2norm(const float* x, float* y, int n, int d) {
    float s = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) s += x[blockIdx.x * d + c] * x[blockIdx.x * d + c];
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
    float scale = __half2float(__float2half(rsqrtf(s)));
    for (int c = threadIdx.x; c < d; c += 32) y[blockIdx.x * d + c] = x[blockIdx.x * d + c] * scale;
}
