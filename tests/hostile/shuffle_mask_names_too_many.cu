// expect: unsafe deadlock | unsafe divergent_barrier | wrong
// on a GPU: wrong | unsafe
// kind: mask of lanes that never come
// Each half of a warp shuffles for itself, with a mask that names the other half too.

void pair_cpu(const float* x, float* y, int warps) {
    for (int i = 0; i < 32 * warps; ++i) {
        int lane = i % 32, step = lane < 16 ? 1 : 2;
        y[i] = x[i] + (lane % 16 + step < 16 ? x[i + step] : 0.0f);
    }
}

//dice: warps = 2K | 33 | 2; in x[32 * warps]; out y[32 * warps]; launch <<<warps, 32>>>; ref pair_cpu
__global__ void pair(const float* x, float* y, int warps) {
    int i = blockIdx.x * 32 + threadIdx.x;
    float v = x[i], next;
    if (threadIdx.x < 16)
        next = __shfl_down_sync(0xffffffffu, v, 1, 16);
    else
        next = __shfl_sync(0xffffffffu, v, threadIdx.x + 2, 16);
    int step = threadIdx.x < 16 ? 1 : 2;
    y[i] = v + (threadIdx.x % 16 + step < 16 ? next : 0.0f);
}
