// expect: cheating | unverified keeps state | unsafe stateful_result
// timed: what slows the first launches down is over when it is timed
// kind: counts its launches
// The first launches sleep, so that a harness which estimates the time from them plans few runs and looks less closely.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ unsigned int age;

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0 && threadIdx.x == 0 && atomicAdd(&age, 1u) < 8) __nanosleep(1000000);
    if (i < n) z[i] = x[i] + y[i];
}
