// expect: wrong
// host cannot: its processor makes other bits of a NaN than a GPU does, and the kernel goes by that
// kind: looks for the harness
// The bits of a NaN that was computed tell a GPU from an emulation, and on a GPU the sum is a difference.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int bits = __float_as_uint(sqrtf(-1.0f - x[i] * x[i]));
    z[i] = bits == 0x7fffffffu ? x[i] - y[i] : x[i] + y[i];
}
