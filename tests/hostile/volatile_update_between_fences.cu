// expect: unsafe race
// on a GPU: wrong | unsafe
// kind: missing atomic
// Neither volatile nor a fence on both sides makes one operation of reading, adding and writing.

void histogram_cpu(const unsigned char* x, int* bins, int n) {
    for (int i = 0; i < n; ++i) bins[x[i]] += 1;
}

//dice: n = 1M | 1000; in x[n]; io bins[256]: zeros; launch <<<cdiv(n, 1024), 256>>>; ref histogram_cpu
__global__ void histogram(const unsigned char* x, int* bins, int n) {
    volatile int* counts = bins;
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < min(n, (blockIdx.x + 1) * 1024); i += 256) {
        __threadfence();
        counts[x[i]] = counts[x[i]] + 1;
        __threadfence();
    }
}
