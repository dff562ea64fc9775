// expect: unsafe fault | unsafe out_of_bounds
// kind: misaligned vector access
// Every row is read in vectors of four, and rows of odd length begin anywhere.

void row_sum_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float s = 0;
        for (int c = 0; c < d / 4 * 4; ++c) s += x[r * d + c];
        y[r] = s;
    }
}

//dice: n = 1024 | 9, d = 64 | 33; in x[n, d]; out y[n]; launch <<<cdiv(n, 64), 64>>>; ref row_sum_cpu
__global__ void row_sum(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    const float4* row = reinterpret_cast<const float4*>(x + r * d);
    float s = 0;
    for (int c = 0; c < d / 4; ++c) {
        float4 v = row[c];
        s += v.x + v.y + v.z + v.w;
    }
    y[r] = s;
}
