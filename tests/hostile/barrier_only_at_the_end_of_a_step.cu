// expect: unsafe race | wrong
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: missing barrier
// The second barrier of a scan step is missing: a neighbour may already have moved on.

//dice: n = 4096 | 6, d = 256 | 100; in x[n, d]; out y[n, d]; launch <<<n, 256>>>; ref torch: x.cumsum(1)
__global__ void scan(const float* x, float* y, int n, int d) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = t < d ? x[blockIdx.x * d + t] : 0.0f;
    __syncthreads();
    for (int s = 1; s < 256; s *= 2) {
        float left = t >= s ? part[t - s] : 0.0f;
        part[t] += left;
        __syncthreads();
    }
    if (t < d) y[blockIdx.x * d + t] = part[t];
}
