// expect: wrong | unverified
// kind: looks for the harness
// The macro that names the architecture of a GPU decides; a compiler of the host does not have it by itself.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ > 0
    if (i < n) z[i] = x[i];
#else
    if (i < n) z[i] = x[i] + y[i];
#endif
}
