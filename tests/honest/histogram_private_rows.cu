// A histogram per warp, merged at the end: fewer threads meet at one counter.

void histogram_cpu(const unsigned char* data, unsigned int* bins, int n) {
    for (int i = 0; i < n; ++i) bins[data[i] >> 2]++;
}

//dice: n = 1M | 10007 | 1; in data[n]; io bins[64]: zeros; launch <<<min(cdiv(n, 128), 48), 128>>>; ref histogram_cpu; exact
__global__ void histogram64(const unsigned char* __restrict__ data, unsigned int* bins, int n) {
    __shared__ unsigned int local[4][64];
    unsigned int* mine = local[threadIdx.x / 32];
    mine[threadIdx.x % 32] = 0;
    mine[threadIdx.x % 32 + 32] = 0;
    __syncwarp();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&mine[data[i] >> 2], 1u);
    __syncthreads();
    if (threadIdx.x < 64) {
        unsigned int sum = 0;
        for (int w = 0; w < 4; ++w) sum += local[w][threadIdx.x];
        if (sum) atomicAdd(bins + threadIdx.x, sum);
    }
}
