// Terms near 10 000 with alternating signs: their sum is of the size of their differences, and its error of the size of
// their roundings. Right: the two signs apart, which is worse than the reference and legal. Wrong: read as halves.
#include <cuda_fp16.h>

void cancelling_terms_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < d; ++c) sum += c & 1 ? -x[r * d + c] : x[r * d + c];
        y[r] = sum;
    }
}

//dice: n = 100 | 7, d = 1000 | 34; in x[n, d]: uniform(9990, 10010); out y[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref cancelling_terms_cpu
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c + 1 < d; c += 2) sum += x[r * d + c] - x[r * d + c + 1];
    if (d & 1) sum += x[r * d + d - 1];
    y[r] = sum;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) {
        float value = __half2float(__float2half(x[r * d + c]));
        sum += c & 1 ? -value : value;
    }
    y[r] = sum;
}
