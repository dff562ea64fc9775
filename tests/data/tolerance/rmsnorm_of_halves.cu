// Halves in and out. Right: squares summed in float, one rounding at the end. Wrong: squares summed in half, which is off
// by 2e-3 in the scale of a whole row.
#include <cuda_fp16.h>

void rmsnorm_of_halves_cpu(const __half* x, const __half* w, __half* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float squares = 0.0f;
        for (int c = 0; c < d; ++c) squares += __half2float(x[r * d + c]) * __half2float(x[r * d + c]);
        float scale = 1.0f / sqrtf(squares / d + 1e-5f);
        for (int c = 0; c < d; ++c)
            y[r * d + c] = __float2half(__half2float(x[r * d + c]) * scale * __half2float(w[c]));
    }
}

//dice: n = 40 | 5, d = 512 | 33; in x[n, d], w[d]; out y[n, d]; launch <<<n, 32>>>; ref rmsnorm_of_halves_cpu
__global__ void right(const __half* x, const __half* w, __half* y, int n, int d) {
    int r = blockIdx.x;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) {
        float value = __half2float(x[r * d + c]);
        squares += value * value;
    }
    for (int s = 16; s > 0; s >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, s);
    float scale = rsqrtf(squares / d + 1e-5f);
    for (int c = threadIdx.x; c < d; c += 32)
        y[r * d + c] = __float2half(__half2float(x[r * d + c]) * (scale * __half2float(w[c])));
}

__global__ void wrong(const __half* x, const __half* w, __half* y, int n, int d) {
    int r = blockIdx.x;
    __half squares = __float2half(0.0f);
    for (int c = 0; c < d; ++c) squares = __hfma(x[r * d + c], x[r * d + c], squares);
    float scale = rsqrtf(__half2float(squares) / d + 1e-5f);
    for (int c = threadIdx.x; c < d; c += 32)
        y[r * d + c] = __float2half(__half2float(x[r * d + c]) * scale * __half2float(w[c]));
}
