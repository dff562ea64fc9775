#include <cuda_runtime.h>

void dot_cpu(const float* a, const float* b, float* result, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    *result += sum;
}

//dice: n = 1M | 1000 | 257; in a[n], b[n]; io result[1]: zeros; launch <<<64, 256>>>
__global__ void dot(const float* a, const float* b, float* result, int n) {
    __shared__ float cache[256];
    int tid = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x)
        sum += a[i] * b[i];
    cache[tid] = sum;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cache[tid] += cache[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        atomicAdd(result, cache[0]);
}
