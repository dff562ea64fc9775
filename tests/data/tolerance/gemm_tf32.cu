// A product of fp32 matrices through TF32 keeps ten bits of each factor: off by 3e-4 of a term where fp32 is off by
// 6e-8. Right: fp32 with two accumulators. Wrong: factors rounded to TF32, as a tensor core does when it is let.

__device__ float to_tf32(float value) { return __uint_as_float((__float_as_uint(value) + 0x1000u) & 0xffffe000u); }

//dice: m = 64 | 33, n = 48 | 17, k = 512 | 65; in A[m, k], B[k, n]; out C[m, n]; ref torch: A @ B
//dice: launch <<<{cdiv(n, 16), cdiv(m, 16)}, {16, 16}>>>
__global__ void right(const float* A, const float* B, float* C, int m, int n, int k) {
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    if (r >= m || c >= n) return;
    float even = 0.0f, odd = 0.0f;
    for (int i = 0; i + 1 < k; i += 2) {
        even += A[r * k + i] * B[i * n + c];
        odd += A[r * k + i + 1] * B[(i + 1) * n + c];
    }
    if (k & 1) even += A[r * k + k - 1] * B[(k - 1) * n + c];
    C[r * n + c] = even + odd;
}

__global__ void wrong(const float* A, const float* B, float* C, int m, int n, int k) {
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    if (r >= m || c >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += to_tf32(A[r * k + i]) * to_tf32(B[i * n + c]);
    C[r * n + c] = sum;
}
