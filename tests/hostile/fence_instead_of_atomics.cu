// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: lost update
// A fence orders a thread's own accesses; it keeps nobody else from adding at the same time.

void histogram_cpu(const unsigned char* x, int* bins, int n) {
    for (int i = 0; i < n; ++i) bins[x[i]] += 1;
}

//dice: n = 1M | 1000; in x[n]; io bins[256]: zeros; launch <<<cdiv(n, 256), 256>>>; ref histogram_cpu
__global__ void histogram(const unsigned char* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        bins[x[i]] += 1;
        __threadfence();
    }
}
