// expect: unsafe race | wrong | unsafe uninitialized
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: block trusts another block
// Each block adds the total of the one before it, which may not have been written yet.

void scan_cpu(const float* x, float* y, float* totals, int n) {
    float s = 0;
    for (int i = 0; i < n; ++i) y[i] = s += x[i];
}

//dice: n = 4096 | 1000 | 300; in x[n]; out y[n]; tmp totals[cdiv(n, 64)]: zeros; launch <<<cdiv(n, 64), 64>>>; ref scan_cpu
__global__ void scan(const float* x, float* y, float* totals, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 64; ++k) s[k] += s[k - 1];
        float before = blockIdx.x > 0 ? totals[blockIdx.x - 1] : 0.0f;
        for (int k = 0; k < 64; ++k) s[k] += before;
        totals[blockIdx.x] = s[63];
    }
    __syncthreads();
    if (i < n) y[i] = s[threadIdx.x];
}
