#include <cuda_runtime.h>

void row_sum_cpu(const float* x, float* sums, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        float total = 0.0f;
        for (int c = 0; c < cols; c++) {
            total += x[r * cols + c];
        }
        sums[r] = total;
    }
}

//dice: rows = 2048 | 7 | 33, cols = 1024 | 65 | 1000; in x[rows, cols]; out sums[rows]
//dice: launch <<<rows, 256>>>; ref row_sum_cpu; tol 1e-5
__global__ void row_sum(const float* x, float* sums, int rows, int cols) {
    __shared__ float partial[256];
    int row = blockIdx.x;
    float total = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        total += x[row * cols + c];
    }
    partial[threadIdx.x] = total;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) {
            partial[threadIdx.x] += partial[threadIdx.x + step];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[row] = partial[0];
    }
}
