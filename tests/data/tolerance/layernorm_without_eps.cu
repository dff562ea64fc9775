// The 1e-5 under the root is 5e-6 of an ordinary row and all of a constant one. Right: rsqrtf of variance and eps, two
// ulps off. Wrong: no eps, which divides by zero where a row is constant.

//dice: n = 40 | 5, d = 96 | 33; in x[n, d]; out y[n, d]; launch <<<cdiv(n, 32), 32>>>; ref torch: F.layer_norm(x, (d,))
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) mean += x[r * d + c];
    mean /= d;
    for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    float scale = rsqrtf(squares / d + 1e-5f);
    for (int c = 0; c < d; ++c) y[r * d + c] = (x[r * d + c] - mean) * scale;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float mean = 0.0f, squares = 0.0f;
    for (int c = 0; c < d; ++c) mean += x[r * d + c];
    mean /= d;
    for (int c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    float scale = rsqrtf(squares / d);
    for (int c = 0; c < d; ++c) y[r * d + c] = (x[r * d + c] - mean) * scale;
}
