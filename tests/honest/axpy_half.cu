// Half precision in and out, the sum in single.
#include <cuda_fp16.h>

//dice: n = 16M | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; set a = 2.5f; ref torch: a * x + y
__global__ void axpy(const __half* x, const __half* y, __half* z, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = __float2half(a * __half2float(x[i]) + __half2float(y[i]));
}
