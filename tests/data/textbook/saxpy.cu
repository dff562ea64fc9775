#include <cuda_runtime.h>

//dice: n = 1M | 4097 | 31; in x[n]; io y[n]; launch <<<cdiv(n, 256), 256>>>; ref saxpy_host; bytes 12*n
__global__ void saxpy(int n, float a, const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

static void saxpy_host(int n, float a, const float* x, float* y)
{
    for (int i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
}
