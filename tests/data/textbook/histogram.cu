#include <cuda_runtime.h>

void histogram_cpu(const unsigned char* data, unsigned int* hist, int n) {
    for (int i = 0; i < n; i++) {
        hist[data[i]]++;
    }
}

//dice: n = 1M | 1000 | 77; in data[n]; io hist[256]: zeros; launch <<<cdiv(n, 256), 256>>>; ref histogram_cpu; tol exact
__global__ void histogram(const unsigned char* data, unsigned int* hist, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&hist[data[i]], 1u);
    }
}
