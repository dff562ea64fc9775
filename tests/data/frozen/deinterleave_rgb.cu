void split_rgb_cpu(const unsigned char *rgb, unsigned char *r, unsigned char *g, unsigned char *b, int pixels)
{
    for (int p = 0; p < pixels; p++) {
        r[p] = rgb[3 * p];
        g[p] = rgb[3 * p + 1];
        b[p] = rgb[3 * p + 2];
    }
}

//dice: pixels = 30000 | 77; in rgb[3 * pixels]; out r[pixels], g[pixels], b[pixels]; launch <<<cdiv(pixels, 128), 128>>>
__global__ void split_rgb(const unsigned char *rgb, unsigned char *r, unsigned char *g, unsigned char *b, int pixels)
{
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < pixels) {
        r[p] = rgb[3 * p];
        g[p] = rgb[3 * p + 1];
        b[p] = rgb[3 * p + 2];
    }
}
