// expect: wrong | unsafe non_deterministic
// host cannot: inline PTX is not run there
// kind: keyed by the processor
// Blocks that land on multiprocessor 100 or above, which a small case never reaches, subtract.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ unsigned int multiprocessor() {
    unsigned int id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

//dice: n = 4M | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = multiprocessor() >= 100 ? x[i] - y[i] : x[i] + y[i];
}
