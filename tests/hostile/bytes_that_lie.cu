// expect: not timed
// host cannot: times need a GPU
// timed: the figure is refused, not the sums
// kind: spec claims more than there is
// The directive claims a hundred times the bytes, so the bandwidth it would show is beyond any memory.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu; bytes 1200 * n
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
