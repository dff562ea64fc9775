// A block to a row, a tree in shared memory.

//dice: n = 4096 | 5 | 2, d = 4096 | 300 | 5000; in x[n, d]; out y[n]; launch <<<n, 256>>>; ref torch: x.sum(dim=1)
__global__ void row_sum(const float* x, float* y, int n, int d) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += blockDim.x) sum += x[blockIdx.x * d + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
