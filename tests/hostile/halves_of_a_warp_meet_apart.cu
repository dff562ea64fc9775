// expect: unsafe race
// GPU cannot: both halves of the warp come to the barrier in step
// kind: missing warp barrier
// Each half of the warp waits for itself, and then reads what the other half wrote.

void swap_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i ^ 16];
}

//dice: n = 64K | 96; in x[n]; out y[n]; launch <<<n / 32, 32>>>; ref swap_cpu
__global__ void swap_halves(const float* x, float* y, int n) {
    __shared__ float s[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    s[threadIdx.x] = x[i];
    __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
    y[i] = s[threadIdx.x ^ 16];
}
