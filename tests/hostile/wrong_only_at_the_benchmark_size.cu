// expect: wrong
// host cannot: sixteen million elements are too many for it
// kind: keyed by the size
// Exactly the size that is timed takes a path that copies, every size that is merely checked is summed.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 16M | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = n == 16 * 1024 * 1024 ? x[i] : x[i] + y[i];
}
