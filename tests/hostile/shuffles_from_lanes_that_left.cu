// expect: wrong | unsafe
// GPU cannot: what is read of a lane that left happens to be zero there
// kind: value of a lane that is gone
// The guard sends home the lanes beyond the end, and the rest adds what their registers may hold.

void warp_sums_cpu(const float* x, float* y, int n) {
    for (int w = 0; w * 32 < n; ++w) {
        float s = 0;
        for (int i = w * 32; i < n && i < w * 32 + 32; ++i) s += x[i];
        y[w] = s;
    }
}

//dice: n = 64K | 1000 | 33; in x[n]; out y[cdiv(n, 32)]; launch <<<cdiv(n, 128), 128>>>; ref warp_sums_cpu
__global__ void warp_sums(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(__activemask(), v, o);
    if (i % 32 == 0) y[i / 32] = v;
}
