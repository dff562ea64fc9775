// expect: unsafe precision_dropped | wrong
// kind: precision dropped
// Inputs of a single-precision product keep ten bits, as tensor cores do in TF32.

__device__ float tf32(float v) { return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u); }

//dice: n = 256 | 33 | 100; in a[n, n], b[n, n]; out c[n, n]; launch <<<{cdiv(n, 16), cdiv(n, 16)}, {16, 16}>>>
//dice: ref torch: a @ b
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += tf32(a[row * n + k]) * tf32(b[k * n + col]);
    c[row * n + col] = sum;
}
