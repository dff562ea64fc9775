// expect: unsafe precision_dropped | wrong
// kind: precision dropped
// The sum is computed with 11 bits.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}
#include <cuda_fp16.h>

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = __half2float(__float2half(x[i] + y[i]));
}
