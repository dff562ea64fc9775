#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

void saxpy_cpu(int n, float a, const float* x, const float* y, float* z) {
    for (int i = 0; i < n; i++)
        z[i] = a * x[i] + y[i];
}

__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        z[i] = a * x[i] + y[i];
}

int main() {
    const int n = 1 << 20;
    float *x, *y, *z;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    cudaMalloc(&z, n * sizeof(float));
    saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y, z);
    cudaError_t status = cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorString(status));
    cudaFree(x);
    cudaFree(y);
    cudaFree(z);
    return status == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
}
