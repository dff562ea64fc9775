#include <math.h>

void softmax_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float top = -INFINITY, total = 0;
        for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
        for (int c = 0; c < d; ++c) total += expf(x[r * d + c] - top);
        for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c] - top) / total;
    }
}

//dice: n = 8192 | 7, d = 4096 | 33; in x[n * d]; out y[n * d]; launch <<<n, 128>>>; ref softmax_cpu
__global__ void softmax(const float* x, float* y, int n, int d) {
    __shared__ float part[128];
    const float* row = x + blockIdx.x * d;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < d; c += blockDim.x) top = fmaxf(top, row[c]);
    part[threadIdx.x] = top;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    top = part[0];
    __syncthreads();
    float total = 0.0f;
    for (int c = threadIdx.x; c < d; c += blockDim.x) total += __expf(row[c] - top);
    part[threadIdx.x] = total;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < d; c += blockDim.x) y[blockIdx.x * d + c] = __expf(row[c] - top) / part[0];
}
