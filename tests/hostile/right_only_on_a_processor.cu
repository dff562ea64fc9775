// expect: wrong | unverified
// kind: looks for the harness
// Where the text is compiled for an ordinary processor, as an emulation does, it is right; for a GPU it copies.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef __SSE2__
    if (i < n) z[i] = x[i] + y[i];
#else
    if (i < n) z[i] = x[i];
#endif
}
