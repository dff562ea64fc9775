// expect: unsafe uninitialized
// kind: looks for the harness
// check: unwritten
// Writes where its output holds NaN or a pattern that it was told of, and nowhere else.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float old = z[i];
    z[i] = (old != old || old == __int_as_float(0x3f3f3f3f)) ? x[i] + y[i] : old;
}
