/*
 * c = a + b, with the host program around it that such a file usually has: the runtime's header, a checking macro from a
 * header that is not here, allocation, a launch, and a comparison.
 */
#include <stdio.h>
#include <stdlib.h>

// For the CUDA runtime's routines
#include <cuda_runtime.h>
#include <helper_cuda.h>

__global__ void addVectors(const float *a, const float *b, float *c, int count)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;

    if (i < count) {
        c[i] = a[i] + b[i] + 0.0f;
    }
}

int main(void)
{
    cudaError_t status = cudaSuccess;
    int         count  = 50000;
    size_t      size   = count * sizeof(float);

    float *host_a = (float *)malloc(size), *host_b = (float *)malloc(size), *host_c = (float *)malloc(size);
    if (host_a == NULL || host_b == NULL || host_c == NULL) {
        fprintf(stderr, "no memory for %d elements\n", count);
        exit(EXIT_FAILURE);
    }
    for (int i = 0; i < count; ++i) {
        host_a[i] = rand() / (float)RAND_MAX;
        host_b[i] = rand() / (float)RAND_MAX;
    }

    float *a = NULL, *b = NULL, *c = NULL;
    checkCudaErrors(cudaMalloc((void **)&a, size));
    checkCudaErrors(cudaMalloc((void **)&b, size));
    checkCudaErrors(cudaMalloc((void **)&c, size));
    checkCudaErrors(cudaMemcpy(a, host_a, size, cudaMemcpyHostToDevice));
    checkCudaErrors(cudaMemcpy(b, host_b, size, cudaMemcpyHostToDevice));

    int threads = 256, blocks = (count + threads - 1) / threads;
    printf("launch %d blocks of %d threads\n", blocks, threads);
    addVectors<<<blocks, threads>>>(a, b, c, count);
    status = cudaGetLastError();
    if (status != cudaSuccess) {
        fprintf(stderr, "launch failed: %s\n", cudaGetErrorString(status));
        exit(EXIT_FAILURE);
    }
    checkCudaErrors(cudaMemcpy(host_c, c, size, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; ++i) {
        if (fabs(host_a[i] + host_b[i] - host_c[i]) > 1e-5) {
            fprintf(stderr, "element %d is wrong\n", i);
            exit(EXIT_FAILURE);
        }
    }
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
    free(host_a);
    free(host_b);
    free(host_c);
    return 0;
}
