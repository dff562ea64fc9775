// expect: wrong
// kind: infinity becomes a number
// check: inf
// Sums are kept below the greatest float, so that an infinity in an input comes out as a number.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = x[i] + y[i];
    z[i] = s > FLT_MAX ? FLT_MAX : s < -FLT_MAX ? -FLT_MAX : s;
}
