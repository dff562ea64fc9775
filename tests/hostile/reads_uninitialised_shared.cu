// expect: unsafe uninitialized | wrong
// kind: never set
// Shared memory is read that nobody wrote.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ float seen[256];
    if (i < n && threadIdx.x != 3) seen[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) z[i] = seen[threadIdx.x] + y[i];
}
