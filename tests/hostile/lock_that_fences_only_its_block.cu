// expect: unsafe race
// GPU cannot: the write arrives before the next owner of the lock reads, as things are
// kind: missing fence
// The lock is handed on after a fence that other blocks do not see.

void sum_cpu(const int* x, int* lock, int* y, int n) {
    for (int i = 0; i < n; ++i) y[0] += x[i];
}

//dice: n = 64K | 1000; in x[n]; tmp lock[1]: zeros; io y[1]: zeros; launch <<<cdiv(n, 1024), 256>>>; ref sum_cpu
__global__ void sum(const int* x, int* lock, int* y, int n) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < min(n, (blockIdx.x + 1) * 1024); i += 256) atomicAdd(&s, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        *(volatile int*)y += s;
        __threadfence_block();
        atomicExch(lock, 0);
    }
}
