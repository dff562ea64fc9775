// expect: compile_failed | cheating own_stream
// kind: work in another stream
// The work is given to a kernel of its own stream, which may still run when the time is taken.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__global__ void work(const float* x, const float* y, float* z, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000; in x[n], y[n]; out z[n]; launch <<<1, 32>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    if (threadIdx.x == 0) work<<<1, 256, 0, cudaStreamFireAndForget>>>(x, y, z, n);
}
