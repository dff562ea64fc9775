// expect: unverified | unsafe fault
// kind: never launched
// The launch asks for more shared memory than a block can have, so that nothing runs and old memory is taken for the sums.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256, 240 * 1024>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) z[i] = tile[threadIdx.x] + y[i];
}
