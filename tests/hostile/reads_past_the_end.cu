// expect: unsafe out_of_bounds
// kind: read with no weight
// check: bounds
// The neighbour of the last element is read, and added with weight zero.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i] + 0.0f * x[i + 1];
}
