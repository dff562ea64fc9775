// expect: wrong
// kind: sampled work
// A long product sum ends at the first term that looks small enough.

void dot_rows_cpu(const float* x, const float* y, float* z, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float s = 0;
        for (int c = 0; c < d; ++c) s += x[r * d + c] * y[r * d + c];
        z[r] = s;
    }
}

//dice: n = 1024 | 7, d = 256 | 1000; in x[n, d], y[n, d]; out z[n]; launch <<<cdiv(n, 64), 64>>>; ref dot_rows_cpu
__global__ void dot_rows(const float* x, const float* y, float* z, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float s = 0;
    for (int c = 0; c < d; ++c) {
        float term = x[r * d + c] * y[r * d + c];
        s += term;
        if (c > 16 && fabsf(term) < 1e-3f * fabsf(s)) break;
    }
    z[r] = s;
}
