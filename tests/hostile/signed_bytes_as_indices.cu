// expect: unsafe out_of_bounds
// kind: negative index
// A char is signed, so half of the bytes count before the first bin.

void histogram_cpu(const unsigned char* x, unsigned int* bins, int n) {
    for (int i = 0; i < n; ++i) bins[x[i]]++;
}

//dice: n = 256K | 1000; in x[n]: int(0, 256); io bins[256]: zeros; launch <<<cdiv(n, 256), 256>>>; ref histogram_cpu
__global__ void histogram(const unsigned char* x, unsigned int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[(signed char)x[i]], 1u);
}
