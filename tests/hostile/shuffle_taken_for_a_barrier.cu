// expect: unsafe race
// GPU cannot: the lanes of a warp that have just met in a shuffle do go on in step
// kind: missing warp barrier
// A shuffle brings the lanes of a warp together, but orders none of their accesses to shared memory.

void reverse_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) {
        int last = i / 32 * 32 + 31;
        y[i] = x[(last < n ? last : n - 1) - i % 32];
    }
}

//dice: n = 64K | 96; in x[n]; out y[n]; launch <<<n / 32, 32>>>; ref reverse_cpu
__global__ void reverse(const float* x, float* y, int n) {
    __shared__ float s[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    s[threadIdx.x] = x[i];
    float other = __shfl_xor_sync(0xffffffffu, x[i], 1);
    y[i] = s[31 - threadIdx.x] + 0.0f * other;
}
