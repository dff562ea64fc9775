// A division replaced by a product with the reciprocal is one rounding more. Right: the reciprocal in float. Wrong: its
// first guess, good to eleven bits, without the step that refines it.
#include <cuda_fp16.h>

//dice: n = 3000; in x[n], y[n]: uniform(1, 9); out z[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: x / y
__global__ void right(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] * (1.0f / y[i]);
}

__global__ void wrong(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] * __half2float(__float2half(1.0f / y[i]));
}
