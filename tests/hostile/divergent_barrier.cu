// expect: unsafe divergent_barrier
// on a GPU: unsafe timeout | unsafe divergent_barrier | verified
// kind: divergent barrier
// Half of the block waits at one barrier, the rest at another.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 16) {
        __syncthreads();
        if (i < n) z[i] = x[i] + y[i];
    } else {
        if (i < n) z[i] = x[i] + y[i];
        __syncthreads();
    }
}
