// expect: cheating | unverified keeps state | unsafe
// timed: the pointers repeat only when it is timed
// kind: memo in device memory
// The answer is kept with the addresses it was computed for, and copied out when they come again.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ float memo[1 << 20];
__device__ const float* memo_x;
__device__ const float* memo_y;

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (memo_x == x && memo_y == y) {
        z[i] = memo[i];
    } else {
        memo[i] = z[i] = x[i] + y[i];
        if (i == n - 1) memo_x = x, memo_y = y;
    }
}
