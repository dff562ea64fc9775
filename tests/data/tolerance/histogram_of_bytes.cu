// Counts are integers and exact. Right: atomics in shared memory, then one per bin. Wrong: the last bin's edge is
// rounded, so one value in 256 is counted beside its place.

void histogram_of_bytes_cpu(const unsigned char* x, int* h, int n) {
    for (int b = 0; b < 16; ++b) h[b] = 0;
    for (int i = 0; i < n; ++i) h[x[i] / 16] += 1;
}

//dice: n = 5000; in x[n]; out h[16]; launch <<<1, 128>>>; ref histogram_of_bytes_cpu
__global__ void right(const unsigned char* x, int* h, int n) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 128) atomicAdd(&bins[x[i] >> 4], 1);
    __syncthreads();
    if (threadIdx.x < 16) h[threadIdx.x] = bins[threadIdx.x];
}

__global__ void wrong(const unsigned char* x, int* h, int n) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 128) atomicAdd(&bins[x[i] * 16 / 257], 1);
    __syncthreads();
    if (threadIdx.x < 16) h[threadIdx.x] = bins[threadIdx.x];
}
