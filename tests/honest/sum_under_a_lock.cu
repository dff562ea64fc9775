// One thread of a block takes a lock, adds, and lets go of it with a volatile write.

void sum_cpu(const int* x, int* lock, int* y, int n) {
    for (int i = 0; i < n; ++i) y[0] += x[i];
}

//dice: n = 1M | 1000; in x[n]; tmp lock[1]: zeros; io y[1]: zeros; launch <<<cdiv(n, 1024), 256>>>; ref sum_cpu
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
        __threadfence();
        *(volatile int*)lock = 0;
    }
}
