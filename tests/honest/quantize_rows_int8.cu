// A row's greatest magnitude becomes 127; scale and signed bytes come out.
#include <math.h>

void quantize_cpu(const float* x, signed char* q, float* scale, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        float top = 0;
        for (int c = 0; c < cols; ++c) top = fmaxf(top, fabsf(x[r * cols + c]));
        scale[r] = top / 127;
        for (int c = 0; c < cols; ++c) q[r * cols + c] = top > 0 ? (signed char)rintf(x[r * cols + c] / top * 127) : 0;
    }
}

//dice: rows = 512 | 9 | 1, cols = 512 | 100 | 33; in x[rows, cols]; out q[rows, cols], scale[rows]; launch <<<rows, 64>>>
//dice: ref quantize_cpu
__global__ void quantize(const float* x, signed char* q, float* scale, int rows, int cols) {
    __shared__ float tops[2];
    const float* row = x + (size_t)blockIdx.x * cols;
    float top = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 64) top = fmaxf(top, fabsf(row[c]));
    for (int o = 16; o > 0; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, o));
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
    top = fmaxf(tops[0], tops[1]);
    for (int c = threadIdx.x; c < cols; c += 64)
        q[(size_t)blockIdx.x * cols + c] = top > 0.0f ? (signed char)__float2int_rn(row[c] / top * 127.0f) : 0;
    if (threadIdx.x == 0) scale[blockIdx.x] = top / 127.0f;
}
