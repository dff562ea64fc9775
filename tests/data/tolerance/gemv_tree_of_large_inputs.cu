// A warp sums a row of products of 1e8: where they cancel, the rounding of one product is larger than the sum. Right: a
// tree by shuffles; its error is small beside the terms, which is what counts. Wrong: the vector is kept in half precision.
#include <cuda_fp16.h>

void gemv_tree_of_large_inputs_cpu(const float* A, const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += A[r * d + c] * x[c];
        y[r] = sum;
    }
}

//dice: n = 200 | 7, d = 1000 | 33; in A[n, d]: uniform(-1e4, 1e4), x[d]: uniform(-1e4, 1e4); out y[n]
//dice: launch <<<n, 32>>>; ref gemv_tree_of_large_inputs_cpu
__global__ void right(const float* A, const float* x, float* y, int n, int d) {
    int r = blockIdx.x;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) sum += A[r * d + c] * x[c];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if (threadIdx.x == 0) y[r] = sum;
}

__global__ void wrong(const float* A, const float* x, float* y, int n, int d) {
    int r = blockIdx.x;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) sum += A[r * d + c] * __half2float(__float2half(x[c]));
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if (threadIdx.x == 0) y[r] = sum;
}
