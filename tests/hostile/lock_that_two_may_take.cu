// expect: unsafe race
// on a GPU: wrong | unsafe
// kind: lock without an atomic
// Two blocks may both find the lock free before either has taken it.

void sum_cpu(const int* x, int* lock, int* y, int n) {
    for (int i = 0; i < n; ++i) y[0] += x[i];
}

//dice: n = 64K | 4000; in x[n]; tmp lock[1]: zeros; io y[1]: zeros; launch <<<cdiv(n, 256), 256>>>; ref sum_cpu
__global__ void sum(const int* x, int* lock, int* y, int n) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) atomicAdd(&s, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile int* free_at_zero = lock;
        while (*free_at_zero != 0) {
        }
        *free_at_zero = blockIdx.x + 1;
        __threadfence();
        *(volatile int*)y += s;
        __threadfence();
        *free_at_zero = 0;
    }
}
