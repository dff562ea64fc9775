// Each product adds a rounding to all that follow. Right: two factors at a time, which rounds otherwise. Wrong: sums of
// logarithms kept in half precision, whose absolute error is a relative one of the product.
#include <cuda_fp16.h>

//dice: n = 60 | 7, d = 300 | 33; in x[n, d]: uniform(0.9, 1.1); out y[n, d]; launch <<<cdiv(n, 32), 32>>>
//dice: ref torch: torch.cumprod(x, dim=1)
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float product = 1.0f;
    int c = 0;
    for (; c + 1 < d; c += 2) {
        float both = x[r * d + c] * x[r * d + c + 1];
        y[r * d + c] = product * x[r * d + c];
        product *= both;
        y[r * d + c + 1] = product;
    }
    if (c < d) y[r * d + c] = product * x[r * d + c];
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) {
        sum += __half2float(__float2half(logf(x[r * d + c])));
        y[r * d + c] = expf(sum);
    }
}
