// expect: unsafe deadlock | unsafe divergent_barrier
// on a GPU: wrong | unsafe
// kind: mask of lanes that never come
// Half a warp shuffles with a mask that names the other half, which does something else meanwhile.

void pair_cpu(const float* x, float* y, int warps) {
    for (int i = 0; i < 32 * warps; ++i) {
        int lane = i % 32;
        y[i] = lane < 16 ? x[i] + (lane + 1 < 16 ? x[i + 1] : 0.0f) : x[i];
    }
}

//dice: warps = 2K | 33 | 2; in x[32 * warps]; out y[32 * warps]; launch <<<warps, 32>>>; ref pair_cpu
__global__ void pair(const float* x, float* y, int warps) {
    int i = blockIdx.x * 32 + threadIdx.x;
    float v = x[i];
    if (threadIdx.x < 16) {
        float next = __shfl_down_sync(0xffffffffu, v, 1);
        y[i] = v + (threadIdx.x < 15 ? next : 0.0f);
    } else {
        y[i] = __shfl_sync(0xffff0000u, v, threadIdx.x);
    }
}
