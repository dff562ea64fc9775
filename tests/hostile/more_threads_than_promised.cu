// expect: unsafe never_launched | unverified | unsafe fault
// kind: never launched
// check: launched
// The kernel is compiled for at most 64 threads a block and launched with 256: the driver refuses and nothing runs.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void __launch_bounds__(64) add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
