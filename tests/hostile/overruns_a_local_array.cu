// expect: unsafe
// on a GPU: unsafe | wrong
// kind: overruns a local array
// The window of nine is kept in eight places, and the ninth lands on whatever comes next.

void median9_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) {
        float s = 0;
        for (int k = 0; k < 9; ++k) s += x[i + k] * (k + 1);
        y[i] = s;
    }
}

//dice: n = 64K | 1000 | 33; in x[n + 8]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref median9_cpu
__global__ void weighted(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float window[8];
    for (int k = 0; k <= 8; ++k) window[(k * 5) % 9] = x[i + (k * 5) % 9];
    float s = 0;
    for (int k = 0; k <= 8; ++k) s += window[k] * (k + 1);
    y[i] = s;
}
