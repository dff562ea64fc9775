// Halves in and out, and the question is what the sum is kept in. Right: float, rounded to half once at the end. Wrong:
// half, rounded at every addition; after 1000 terms the error is 5e-3 of what the sum is made of.
#include <cuda_fp16.h>

void half_accumulation_cpu(const __half* A, const __half* x, __half* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += __half2float(A[r * d + c]) * __half2float(x[c]);
        y[r] = __float2half(sum);
    }
}

//dice: n = 150 | 9, d = 1000 | 40; in A[n, d], x[d]; out y[n]; launch <<<cdiv(n, 64), 64>>>; ref half_accumulation_cpu
__global__ void right(const __half* A, const __half* x, __half* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float even = 0.0f, odd = 0.0f;
    for (int c = 0; c < d; c += 2) even += __half2float(A[r * d + c]) * __half2float(x[c]);
    for (int c = 1; c < d; c += 2) odd += __half2float(A[r * d + c]) * __half2float(x[c]);
    y[r] = __float2half(even + odd);
}

__global__ void wrong(const __half* A, const __half* x, __half* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    __half sum = __float2half(0.0f);
    for (int c = 0; c < d; ++c) sum = __hfma(A[r * d + c], x[c], sum);
    y[r] = sum;
}
