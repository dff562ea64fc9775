// expect: unsafe out_of_bounds
// kind: spec claims less than there is
// The directive gives the output half its size, so that the wrong half would not be compared.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 34; in x[n], y[n]; out z[n / 2]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = i < n / 2 ? x[i] + y[i] : 0.0f;
}
