// Row sums of positive terms: the partial sums grow with the length, and so do the roundings of a serial sum. Right:
// serial in float. Wrong: each term is read with the ten bits of TF32, which biases nothing and is off by 3e-4 of a term.

void sum_of_positive_terms_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += x[r * d + c];
        y[r] = sum;
    }
}

//dice: n = 80 | 7, d = 4096 | 100; in x[n, d]: uniform(0, 1); out y[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref sum_of_positive_terms_cpu
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += x[r * d + c];
    y[r] = sum;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) {
        unsigned bits = __float_as_uint(x[r * d + c]);
        sum += __uint_as_float((bits + 0x1000u) & 0xffffe000u);
    }
    y[r] = sum;
}
