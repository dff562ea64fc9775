// Points a thousand from the origin and one from each other. Right: squares of differences. Wrong: |a|^2 + |b|^2 - 2ab,
// the same on paper, but a million less a million leaves a tenth of a distance of one.

void squared_distances_cpu(const float* a, const float* b, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += (a[r * d + c] - b[c]) * (a[r * d + c] - b[c]);
        y[r] = sum;
    }
}

//dice: n = 300 | 9, d = 16 | 8; in a[n, d]: uniform(9999, 10001), b[d]: uniform(9999, 10001); out y[n]
//dice: launch <<<cdiv(n, 64), 64>>>; ref squared_distances_cpu
__global__ void right(const float* a, const float* b, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = d - 1; c >= 0; --c) {
        float off = b[c] - a[r * d + c];
        sum = fmaf(off, off, sum);
    }
    y[r] = sum;
}

__global__ void wrong(const float* a, const float* b, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float aa = 0.0f, bb = 0.0f, ab = 0.0f;
    for (int c = 0; c < d; ++c) {
        aa += a[r * d + c] * a[r * d + c];
        bb += b[c] * b[c];
        ab += a[r * d + c] * b[c];
    }
    y[r] = aa + bb - 2.0f * ab;
}
