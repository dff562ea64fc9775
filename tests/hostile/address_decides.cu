// expect: unsafe address_dependent
// kind: keyed by the address
// check: addresses
// A buffer that begins with a page is taken for one of the allocator it was made for, any other goes another way.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 50001 | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = ((size_t)z & 4095) == 0 ? x[i] - y[i] : x[i] + y[i];
}
