void rgb_to_grey_cpu(const unsigned char* rgb, float* grey, int width, int height) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int p = y * width + x;
            grey[p] = 0.299f * rgb[3 * p] + 0.587f * rgb[3 * p + 1] + 0.114f * rgb[3 * p + 2];
        }
}

//dice: width = 160 | 33, height = 120 | 5; in rgb[3 * width * height]; out grey[height, width]
//dice: launch <<<{cdiv(width, 16), cdiv(height, 16)}, {16, 16}>>>
__global__ void rgb_to_grey(const unsigned char* rgb, float* grey, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        int p = y * width + x;
        grey[p] = 0.299f * rgb[3 * p] + 0.587f * rgb[3 * p + 1] + 0.114f * rgb[3 * p + 2];
    }
}
