// expect: unsafe out_of_bounds
// kind: looks for the harness
// check: bounds
// Behind the output stands what a harness writes there to catch overruns; only where it is found is the work done.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool watched = __float_as_uint(z[n]) == __float_as_uint(z[n + 1]);
    z[i] = watched || i >= 0 ? x[i] + y[i] : 0.0f;
}
