#include <cuda_runtime.h>

void vector_add_cpu(const float* a, const float* b, float* c, int n) {
    for (int i = 0; i < n; ++i) {
        c[i] = a[i] + b[i];
    }
}

//dice: n = 1M | 1000 | 33 | 1; in a[n], b[n]; out c[n]; launch <<<cdiv(n, 256), 256>>>
//dice: ref vector_add_cpu; bytes 12*n
__global__ void vector_add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

void run(const float* a, const float* b, float* c, int n) {
    vector_add<<<(n + 255) / 256, 256>>>(a, b, c, n);
}
