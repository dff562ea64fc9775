// expect: wrong
// kind: wrong index
// Right for symmetric inputs only.

//dice: n = 512 | 33 | 16; in a[n, n], b[n, n]; out c[n, n]; launch <<<{cdiv(n, 16), cdiv(n, 16)}, {16, 16}>>>
//dice: ref torch: a @ b
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[col * n + k];
    c[row * n + col] = sum;
}
