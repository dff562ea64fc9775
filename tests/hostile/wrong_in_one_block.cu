// expect: wrong
// kind: keyed by the block
// One block in a thousand takes its neighbour to be good enough, which a sample of the output hardly ever meets.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 4097; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = blockIdx.x % 1000 == 13 ? x[i] - y[i] : x[i] + y[i];
}
