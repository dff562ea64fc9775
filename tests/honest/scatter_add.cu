// Rows are added to where an index array says; several may go to one place, so the additions are atomic.

void scatter_add_cpu(const float* src, const int* index, float* dst, int n, int d, int slots) {
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < d; ++k) dst[index[i] * d + k] += src[i * d + k];
}

//dice: n = 8K | 100 | 1, d = 32 | 7, slots = 1000 | 9 | 1; in src[n, d], index[n]: int(0, slots); io dst[slots, d]
//dice: launch <<<cdiv(n * d, 256), 256>>>; ref scatter_add_cpu
__global__ void scatter_add(const float* src, const int* index, float* dst, int n, int d, int slots) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * d) return;
    int row = i / d, k = i % d;
    atomicAdd(&dst[index[row] * d + k], src[i]);
}
