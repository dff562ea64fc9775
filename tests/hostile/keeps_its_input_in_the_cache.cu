// expect: unverified inline PTX
// on a GPU: verified
// timed: what it would gain is taken away, so the figure stays within what the memory can do
// kind: persisting cache lines
// Its loads ask the L2 to keep their lines when everything else is evicted, so that a loop that times never reads memory.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ float keeping(const float* p) {
    float v;
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(v) : "l"(p), "l"(policy));
    return v;
}

//dice: n = 1M | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu; bytes 12 * n
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = keeping(x + i) + keeping(y + i);
}
