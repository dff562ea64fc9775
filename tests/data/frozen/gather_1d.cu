//dice: n = 40000 | 250 | 1, m = 5000 | 10 | 3; in src[m], idx[n]: int(0, m); out dst[n]
//dice: launch <<<cdiv(n, 256), 256>>>; ref torch: src[idx]
__global__ void gather(const double* __restrict__ src, const int* __restrict__ idx, double* __restrict__ dst, int n, int m) {
    const int tid = blockIdx.x * blockDim.x + threadIdx.x;
    if (tid < n) {
        dst[tid] = src[idx[tid]];
    }
}
