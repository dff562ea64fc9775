void upsample_cpu(const float* in, float* out, int h, int w, int s) {
    for (int y = 0; y < h * s; y++)
        for (int x = 0; x < w * s; x++)
            out[y * w * s + x] = in[(y / s) * w + x / s];
}

//dice: h = 40 | 5, w = 50 | 7, s = 3 | 2; in in[h, w]; out out[h * s, w * s]
//dice: launch <<<{cdiv(w * s, 16), cdiv(h * s, 16)}, {16, 16}>>>
__global__ void upsample(const float* in, float* out, int h, int w, int s) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w * s && y < h * s)
        out[y * w * s + x] = in[(y / s) * w + x / s];
}
