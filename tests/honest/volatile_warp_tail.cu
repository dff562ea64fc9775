// The old style of the last warp, made right: each step of the volatile tail is followed by a barrier of the warp.

void sums_cpu(const float* x, float* y, int blocks) {
    for (int b = 0; b < blocks; ++b) {
        float s = 0;
        for (int i = 0; i < 256; ++i) s += x[b * 256 + i];
        y[b] = s;
    }
}

//dice: blocks = 1024 | 33 | 1; in x[256 * blocks]; out y[blocks]; launch <<<blocks, 128>>>; ref sums_cpu
__global__ void sums(const float* x, float* y, int blocks) {
    __shared__ float s[128];
    const unsigned t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t] + x[blockIdx.x * 256 + t + 128];
    __syncthreads();
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
    if (t < 32) {
        volatile float* v = s;
        float mine = v[t] + v[t + 32];
        __syncwarp();
        for (int step = 16; step > 0; step >>= 1) {
            v[t] = mine;
            __syncwarp();
            mine += v[t + step];
            __syncwarp();
        }
        if (t == 0) y[blockIdx.x] = mine;
    }
}
