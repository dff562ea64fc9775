// A dot product may be kept in float or in double: the result is a float. Right: both. Wrong: eight terms at a time
// through bfloat16 partial sums.
#include <cuda_bf16.h>

void dot_in_float_or_double_cpu(const float* x, const float* y, float* z, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; ++i) sum += (double)x[i] * y[i];
    z[0] = (float)sum;
}

//dice: n = 20000; in x[n], y[n]; out z[1]; launch <<<1, 64>>>; ref dot_in_float_or_double_cpu
__global__ void right_float(const float* x, const float* y, float* z, int n) {
    __shared__ float part[64];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 64) sum += x[i] * y[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < 64; ++t) sum += part[t];
        z[0] = sum;
    }
}

__global__ void right_double(const float* x, const float* y, float* z, int n) {
    __shared__ double part[64];
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += 64) sum += (double)x[i] * y[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < 64; ++t) sum += part[t];
        z[0] = (float)sum;
    }
}

__global__ void wrong(const float* x, const float* y, float* z, int n) {
    __shared__ float part[64];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 64) sum += x[i] * y[i];
    part[threadIdx.x] = __bfloat162float(__float2bfloat16(sum));
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int t = 0; t < 64; ++t) all += part[t];
        z[0] = all;
    }
}
