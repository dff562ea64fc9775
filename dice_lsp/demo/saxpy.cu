#include <cstdio>
#include <cuda_runtime.h>

// What the kernel has to compute.
void saxpy_cpu(int n, float a, const float* x, const float* y, float* z) {
    for (int i = 0; i < n; i++)
        z[i] = a * x[i] + y[i];
}

//dice: n = 1M | 1000003 | 1000; in x[n], y[n]; out z[n]
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        z[i] = a * x[i] + y[i];
}

void launch_saxpy(int n, float a, const float* x, const float* y, float* z) {
    saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y, z);
}
