// Two by two pooling with the place of the greatest, the first of equals; an odd last row or column is dropped.

void pool_cpu(const float* x, float* y, unsigned char* place, int planes, int h, int w) {
    int oh = h / 2, ow = w / 2;
    for (int p = 0; p < planes; ++p)
        for (int i = 0; i < oh; ++i)
            for (int j = 0; j < ow; ++j) {
                int best = 0;
                float top = x[(p * h + 2 * i) * w + 2 * j];
                for (int k = 1; k < 4; ++k) {
                    float v = x[(p * h + 2 * i + k / 2) * w + 2 * j + k % 2];
                    if (v > top) top = v, best = k;
                }
                y[(p * oh + i) * ow + j] = top;
                place[(p * oh + i) * ow + j] = best;
            }
}

//dice: planes = 8 | 3 | 1, h = 112 | 18 | 2, w = 112 | 34 | 2; in x[planes, h, w]
//dice: out y[planes * (h / 2) * (w / 2)], place[planes * (h / 2) * (w / 2)]
//dice: launch <<<dim3(cdiv(w / 2, 16), cdiv(h / 2, 16), planes), dim3(16, 16)>>>; ref pool_cpu
__global__ void max_pool(const float* x, float* y, unsigned char* place, int planes, int h, int w) {
    int ow = w / 2, oh = h / 2;
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y, p = blockIdx.z;
    if (i >= oh || j >= ow) return;
    const float* corner = x + (p * h + 2 * i) * w + 2 * j;
    float v[4] = {corner[0], corner[1], corner[w], corner[w + 1]};
    int best = 0;
    for (int k = 1; k < 4; ++k)
        if (v[k] > v[best]) best = k;
    y[(p * oh + i) * ow + j] = v[best];
    place[(p * oh + i) * ow + j] = best;
}
