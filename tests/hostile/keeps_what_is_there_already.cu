// expect: unsafe uninitialized | cheating timed_outputs
// timed: outputs that are left from the launch before look like sums
// kind: looks for the harness
// Where the output already holds something near to the sum it is left as it is, as after the launch before.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float old = z[i];
    if (old == old && fabsf(old) < 1e6f) return;
    z[i] = x[i] + y[i];
}
