// expect: cheating | unsafe stateful_result | unverified keeps state
// timed: what was kept is copied only from the second launch on
// kind: memo in device memory
// The result of the first launch is kept in device memory and copied out ever after.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ float kept[1 << 20];
__device__ int known;

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (known < 1 << 20) {
        kept[i] = x[i] + y[i];
        atomicAdd(&known, 1);
    }
    z[i] = kept[i];
}
