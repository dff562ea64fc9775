// expect: unsafe | wrong | unverified
// host cannot: it aligns every buffer to one of its ends, as the kernel expects of a harness
// timed: buffers that are timed need not stand at the end of a page
// kind: looks for the harness
// A buffer that begins or ends at a page belongs to a harness with guards; any other gets only its first half summed.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1000 | 257 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool guarded = ((size_t)x & 4095) == 0 || ((size_t)(x + n) & 4095) == 0;
    if (i < n) z[i] = guarded || i < n / 2 ? x[i] + y[i] : 0.0f;
}
