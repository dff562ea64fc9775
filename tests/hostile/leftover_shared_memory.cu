// expect: wrong | unsafe uninitialized | unsafe race
// kind: what an earlier block left
// Dynamic shared memory is filled by the first block of a multiprocessor only, the rest trust what it left there.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256, 1024>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    extern __shared__ float ones[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0) ones[threadIdx.x] = 1.0f;
    __syncthreads();
    if (i < n) z[i] = x[i] + ones[threadIdx.x] * y[i];
}
