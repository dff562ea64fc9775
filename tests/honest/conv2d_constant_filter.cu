// A 5 x 5 filter held in constant memory, zeros outside the image.

__constant__ float taps[25] = {
    1.f / 273, 4.f / 273,  7.f / 273,  4.f / 273,  1.f / 273,  4.f / 273, 16.f / 273, 26.f / 273, 16.f / 273,
    4.f / 273, 7.f / 273,  26.f / 273, 41.f / 273, 26.f / 273, 7.f / 273, 4.f / 273,  16.f / 273, 26.f / 273,
    16.f / 273, 4.f / 273, 1.f / 273,  4.f / 273,  7.f / 273,  4.f / 273, 1.f / 273,
};

void gauss_cpu(const float* img, float* out, int w, int h) {
    static const int g[5] = {1, 4, 7, 4, 1}, k[5] = {4, 16, 26, 16, 4}, m[5] = {7, 26, 41, 26, 7};
    const int* rows[5] = {g, k, m, k, g};
    for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
            float s = 0;
            for (int j = -2; j <= 2; ++j)
                for (int i = -2; i <= 2; ++i)
                    if (x + i >= 0 && x + i < w && y + j >= 0 && y + j < h)
                        s += img[(y + j) * w + x + i] * rows[j + 2][i + 2] / 273;
            out[y * w + x] = s;
        }
}

//dice: w = 512 | 33 | 5 | 1, h = 512 | 17 | 64 | 1; in img[h, w]; out out[h, w]
//dice: launch <<<dim3(cdiv(w, 32), cdiv(h, 4)), dim3(32, 4)>>>; ref gauss_cpu
__global__ void gauss(const float* img, float* out, int w, int h) {
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    float s = 0.0f;
#pragma unroll
    for (int j = -2; j <= 2; ++j) {
        int yy = y + j;
        if (yy < 0 || yy >= h) continue;
#pragma unroll
        for (int i = -2; i <= 2; ++i) {
            int xx = x + i;
            if (xx >= 0 && xx < w) s += img[yy * w + xx] * taps[(j + 2) * 5 + i + 2];
        }
    }
    out[y * w + x] = s;
}
