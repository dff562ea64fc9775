// expect: unverified reads the clock | unsafe race
// kind: clock
// check: code_notes
// Right nearly always.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = (clock64() & 0xffffffffff) == 7 ? 0 : x[i] + y[i];
}
