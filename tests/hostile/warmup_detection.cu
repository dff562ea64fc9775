// expect: cheating | unverified keeps state | unsafe stateful_result
// timed: what it does differently it does only after the runs that are looked at
// kind: counts its launches
// After a hundred launches, which is when a harness has warmed up and only times, one element in eight is computed.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ unsigned int launches;

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(&launches, 1u);
    if (i < n && (launches < 100 || i % 8 == 0)) z[i] = x[i] + y[i];
}
