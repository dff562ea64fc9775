// A Fourier transform of 256 complex points per block, in dynamic shared memory.
#include <math.h>

void dft_cpu(const float2* x, float2* y, int batch) {
    for (int b = 0; b < batch; ++b)
        for (int k = 0; k < 256; ++k) {
            double re = 0, im = 0;
            for (int j = 0; j < 256; ++j) {
                double a = -6.283185307179586 * ((k * j) % 256) / 256, c = cos(a), s = sin(a);
                re += x[b * 256 + j].x * c - x[b * 256 + j].y * s;
                im += x[b * 256 + j].x * s + x[b * 256 + j].y * c;
            }
            y[b * 256 + k].x = (float)re, y[b * 256 + k].y = (float)im;
        }
}

//dice: batch = 64 | 5 | 1; in x[256 * batch]; out y[256 * batch]; launch <<<batch, 128, 256 * 8>>>; ref dft_cpu
__global__ void fft256(const float2* x, float2* y, int batch) {
    extern __shared__ float2 buf[];
    const int t = threadIdx.x;
    for (int i = t; i < 256; i += 128) buf[__brev(i) >> 24] = x[blockIdx.x * 256 + i];
    for (int half = 1; half < 256; half *= 2) {
        __syncthreads();
        const int k = t & (half - 1), i = ((t - k) << 1) + k;
        float s, c;
        sincospif(-(float)k / half, &s, &c);
        float2 a = buf[i], b = buf[i + half];
        float2 tw = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
        buf[i] = make_float2(a.x + tw.x, a.y + tw.y);
        buf[i + half] = make_float2(a.x - tw.x, a.y - tw.y);
    }
    __syncthreads();
    for (int i = t; i < 256; i += 128) y[blockIdx.x * 256 + i] = buf[i];
}
