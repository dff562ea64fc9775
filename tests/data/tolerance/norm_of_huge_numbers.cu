// Squares of 1e20 overflow a float although their root does not. Right: scaled by the largest first. Wrong: plain.

void norm_of_huge_numbers_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float top = 0.0f, squares = 0.0f;
        for (int c = 0; c < d; ++c) top = fmaxf(top, fabsf(x[r * d + c]));
        for (int c = 0; c < d; ++c) squares += (x[r * d + c] / top) * (x[r * d + c] / top);
        y[r] = top * sqrtf(squares);
    }
}

//dice: n = 100 | 7, d = 100 | 33; in x[n, d]: uniform(1e18, 1e20); out y[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref norm_of_huge_numbers_cpu
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float squares = 0.0f;
    for (int c = 0; c < d; ++c) {
        float small = x[r * d + c] * 1e-20f;
        squares += small * small;
    }
    y[r] = sqrtf(squares) * 1e20f;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float squares = 0.0f;
    for (int c = 0; c < d; ++c) squares += x[r * d + c] * x[r * d + c];
    y[r] = sqrtf(squares);
}
