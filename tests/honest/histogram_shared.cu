// Integer atomics commute: the same counts in any order.

//dice: n = 64M | 100001 | 255; in x[n]; io h[256]: zeros; launch <<<min(cdiv(n, 256), 64), 256>>>; exact
//dice: ref torch: h + torch.bincount(x, minlength=256)
__global__ void histogram(const unsigned char* x, unsigned int* h, int n) {
    __shared__ unsigned int bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
    __syncthreads();
    atomicAdd(&h[threadIdx.x], bins[threadIdx.x]);
}
