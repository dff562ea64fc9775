// The parts of a complex product cancel; what counts is the size of the factors. Right: four products, and three, which
// is off by more. Wrong: the second factor is conjugated.

void complex_product_cpu(const float* a, const float* b, float* c, int n) {
    for (int i = 0; i < n; ++i) {
        c[2 * i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
        c[2 * i + 1] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];
    }
}

//dice: n = 2000; in a[2 * n], b[2 * n]; out c[2 * n]; launch <<<cdiv(n, 128), 128>>>; ref complex_product_cpu
__global__ void right_four(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    c[2 * i] = fmaf(ar, br, -ai * bi);
    c[2 * i + 1] = fmaf(ar, bi, ai * br);
}

__global__ void right_three(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    float p = ar * br, q = ai * bi;
    c[2 * i] = p - q;
    c[2 * i + 1] = (ar + ai) * (br + bi) - p - q;
}

__global__ void wrong(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    c[2 * i] = ar * br + ai * bi;
    c[2 * i + 1] = ai * br - ar * bi;
}
