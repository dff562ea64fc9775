// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe address_dependent | unsafe uninitialized | wrong
// kind: lost update
// Every block adds its part to one number, and nothing keeps them apart.

//dice: n = 1M | 3000 | 255; in x[n]; io total[1]: zeros; launch <<<cdiv(n, 128), 128>>>; ref torch: total + x.sum()
__global__ void sum(const float* x, float* total, int n) {
    __shared__ float part[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) total[0] += part[0];
}
