// expect: unsafe unwritten_output
// host cannot: no case that it can run has so many blocks
// kind: keyed by the launch
// The blocks beyond the 4096th do nothing: a case that is small enough for a quick check has none.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 16M; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    if (blockIdx.x > 4096) return;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
