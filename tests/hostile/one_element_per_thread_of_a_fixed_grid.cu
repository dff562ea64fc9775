// expect: unsafe unwritten_output
// kind: tail left out
// The launch has 32768 threads for any n, and the loop over the grid is missing.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 16M; in x[n], y[n]; out z[n]; launch <<<128, 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
