// A sum of a thousand to a million terms in any order: the error of each order grows with the square root of the
// length, for the serial one with the largest factor. Right: serial, by halving, pairwise with 64 terms at the bottom.
// Wrong: partial sums kept in half precision, 8192 times as coarse.
#include <cuda_fp16.h>

void sum_in_three_orders_cpu(const float* x, float* y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i];
    y[0] = sum;
}

__device__ float through_half(float value) { return __half2float(__float2half(value)); }

//dice: n = 1000000 | 100000 | 10000 | 1000; in x[n]; out y[1]; launch <<<1, 256>>>; ref sum_in_three_orders_cpu
__global__ void right_serial(const float* x, float* y, int n) {
    if (threadIdx.x > 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i];
    y[0] = sum;
}

__global__ void right_tree(const float* x, float* y, int n) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 256) sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = part[0];
}

__global__ void right_pairwise(const float* x, float* y, int n) {
    if (threadIdx.x > 0) return;
    float level[32];
    for (int l = 0; l < 32; ++l) level[l] = 0.0f;
    for (int i = 0, piece = 0; i < n; i += 64, ++piece) {
        float sum = 0.0f;
        for (int j = i; j < min(i + 64, n); ++j) sum += x[j];
        int l = 0;
        for (int carry = piece; carry & 1; carry >>= 1, ++l) {
            sum += level[l];
            level[l] = 0.0f;
        }
        level[l] = sum;
    }
    float sum = 0.0f;
    for (int l = 0; l < 32; ++l) sum += level[l];
    y[0] = sum;
}

__global__ void wrong(const float* x, float* y, int n) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 256) sum += x[i];
    part[threadIdx.x] = through_half(sum);
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] = through_half(part[threadIdx.x] + part[threadIdx.x + s]);
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = part[0];
}
