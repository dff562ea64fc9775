// expect: unsafe race
// on a GPU: wrong | unsafe non_deterministic
// kind: missing warp barrier
// check: block_order
// The last steps of a tree count on lanes that move in step, which nothing has promised since Volta.

//dice: n = 1024 | 5, d = 300 | 64; in x[n, d]; out y[n]; launch <<<n, 64>>>; ref torch: x.sum(1)
__global__ void row_sum(const float* x, float* y, int n, int d) {
    __shared__ float s[64];
    float v = 0.0f;
    for (int c = threadIdx.x; c < d; c += 64) v += x[blockIdx.x * d + c];
    s[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        s[threadIdx.x] += s[threadIdx.x + 32];
        if (threadIdx.x < 16) s[threadIdx.x] += s[threadIdx.x + 16];
        if (threadIdx.x < 8) s[threadIdx.x] += s[threadIdx.x + 8];
        if (threadIdx.x < 4) s[threadIdx.x] += s[threadIdx.x + 4];
        if (threadIdx.x < 2) s[threadIdx.x] += s[threadIdx.x + 2];
        if (threadIdx.x < 1) s[threadIdx.x] += s[threadIdx.x + 1];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = s[0];
}
