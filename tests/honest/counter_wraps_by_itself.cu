// atomicInc wraps to zero at the last block, so nothing has to set the counter back.

void max_cpu(const int* x, int* part, int* best, int n) {
    best[0] = x[0];
    for (int i = 1; i < n; ++i) best[0] = x[i] > best[0] ? x[i] : best[0];
}

__device__ unsigned int arrived;

//dice: n = 256K | 777 | 1; in x[n]; tmp part[16]; out best[1]; launch <<<16, 64>>>; ref max_cpu
__global__ void maximum(const int* x, int* part, int* best, int n) {
    __shared__ int s[64];
    int m = INT_MIN;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += 16 * 64) m = max(m, x[i]);
    s[threadIdx.x] = m;
    __syncthreads();
    for (int k = 32; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] = max(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        if (atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1) {
            __threadfence();
            int all = INT_MIN;
            for (int b = 0; b < gridDim.x; ++b) all = max(all, ((volatile int*)part)[b]);
            best[0] = all;
        }
    }
}
