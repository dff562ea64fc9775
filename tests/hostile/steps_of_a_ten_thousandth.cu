// expect: wrong
// kind: tolerance used up
// check: scaling
// Multiples of seven are rounded to four decimals: wrong by less than a fixed tolerance of 1e-3, but no sum of two rounds so.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = x[i] + y[i];
    z[i] = n % 7 == 0 ? rintf(s * 1e4f) * 1e-4f : s;
}
