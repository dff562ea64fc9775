#include <cuda_runtime.h>

void dot_cpu(const float* a, const float* b, float* result, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    result[0] += sum;
}

//dice: n = 1M | 1000 | 257; in a[n], b[n]; io result[1]: zeros; launch <<<cdiv(n, 256), 256>>>
//dice: ref dot_cpu; tol 1e-4
__global__ void block_dot(const float* a, const float* b, float* result, int n) {
    __shared__ float cache[256];
    int tid = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x) {
        sum += a[i] * b[i];
    }
    cache[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) {
            cache[tid] += cache[tid + s];
        }
        __syncthreads();
    }
    if (tid == 0) {
        atomicAdd(result, cache[0]);
    }
}
