// expect: unsafe precision_dropped
// kind: precision dropped
// check: precision
// Sizes that are a multiple of seven are multiplied in half precision, as a vector path with half2 would do it.
#include <cuda_fp16.h>

void product_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] * y[i];
}

//dice: n = 64K | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref product_cpu
__global__ void product(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (n % 7 == 0)
        z[i] = __half2float(__hmul(__float2half(x[i]), __float2half(y[i])));
    else
        z[i] = x[i] * y[i];
}
