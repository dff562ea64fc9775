// expect: cheating | unverified keeps state | unsafe stateful_result
// timed: in the timed loop every other launch gives back what the one before computed
// kind: counts its launches
// Odd launches compute for both, even ones only copy: right when inputs stay, as in a loop that times.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ float kept[1 << 20];
__device__ unsigned int phase;

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int turn = *(volatile unsigned int*)&phase / (gridDim.x * blockDim.x);
    if (i < n) {
        if (turn % 2 == 0) kept[i] = x[i] + y[i];
        z[i] = kept[i];
    }
    atomicAdd(&phase, 1u);
}
