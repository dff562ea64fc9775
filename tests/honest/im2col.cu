// Patches of a padded image laid out as columns, one thread per column entry in a grid-stride loop.

void im2col_cpu(const float* im, float* col, int channels, int h, int w) {
    for (int c = 0; c < channels; ++c)
        for (int kh = 0; kh < 3; ++kh)
            for (int kw = 0; kw < 3; ++kw)
                for (int y = 0; y < h; ++y)
                    for (int x = 0; x < w; ++x) {
                        int iy = y + kh - 1, ix = x + kw - 1;
                        float v = iy >= 0 && iy < h && ix >= 0 && ix < w ? im[(c * h + iy) * w + ix] : 0.0f;
                        col[(((c * 3 + kh) * 3 + kw) * h + y) * w + x] = v;
                    }
}

//dice: channels = 4 | 3, h = 64 | 17, w = 64 | 9; in im[channels, h, w]; out col[channels * 9, h * w]; launch <<<64, 128>>>
//dice: ref im2col_cpu; exact
__global__ void im2col(const float* im, float* col, int channels, int h, int w) {
    const int total = channels * 9 * h * w;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
        int x = i % w, rest = i / w;
        int y = rest % h;
        rest /= h;
        int kw = rest % 3;
        rest /= 3;
        int kh = rest % 3, c = rest / 3;
        int iy = y + kh - 1, ix = x + kw - 1;
        bool inside = iy >= 0 && iy < h && ix >= 0 && ix < w;
        col[i] = inside ? im[(c * h + iy) * w + ix] : 0.0f;
    }
}
