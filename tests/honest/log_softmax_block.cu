// Reductions by warps first, then over the warps of the block.

__device__ __forceinline__ float warp_max(float v) {
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    return v;
}
__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}

//dice: N = 512 | 3, V = 2048 | 777; in x[N, V]; out y[N, V]; launch <<<N, 256>>>; ref torch: F.log_softmax(x, dim=1)
__global__ void log_softmax(const float* x, float* y, int N, int V) {
    __shared__ float smem[8];
    const int lane = threadIdx.x & 31, wid = threadIdx.x >> 5;
    x += blockIdx.x * V;
    y += blockIdx.x * V;

    float best = -FLT_MAX;
    for (int i = threadIdx.x; i < V; i += blockDim.x) best = fmaxf(best, x[i]);
    best = warp_max(best);
    if (lane == 0) smem[wid] = best;
    __syncthreads();
    best = smem[0];
    for (int w = 1; w < blockDim.x / 32; ++w) best = fmaxf(best, smem[w]);
    __syncthreads();

    float total = 0.f;
    for (int i = threadIdx.x; i < V; i += blockDim.x) total += __expf(x[i] - best);
    total = warp_sum(total);
    if (lane == 0) smem[wid] = total;
    __syncthreads();
    total = 0.f;
    for (int w = 0; w < blockDim.x / 32; ++w) total += smem[w];
    const float lse = best + __logf(total);
    for (int i = threadIdx.x; i < V; i += blockDim.x) y[i] = x[i] - lse;
}
