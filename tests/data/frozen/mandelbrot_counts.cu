// Fixed-point with 12 fractional bits, so that every machine counts the same.
void mandelbrot_cpu(int* counts, int width, int height, int limit) {
    for (int py = 0; py < height; py++)
        for (int px = 0; px < width; px++) {
            int cx = (px * 3 << 12) / width - (2 << 12);
            int cy = (py * 2 << 12) / height - (1 << 12);
            int x = 0, y = 0, k = 0;
            while (k < limit && x * x + y * y <= 4 << 24) {
                int t = ((x * x - y * y) >> 12) + cx;
                y = ((x * y) >> 11) + cy;
                x = t;
                k++;
            }
            counts[py * width + px] = k;
        }
}

//dice: width = 96 | 33 | 1, height = 64 | 7 | 1; out counts[height, width]; set limit = 20; exact
//dice: launch <<<{cdiv(width, 16), cdiv(height, 16)}, {16, 16}>>>
__global__ void mandelbrot(int* counts, int width, int height, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px < width && py < height) {
        int cx = (px * 3 << 12) / width - (2 << 12);
        int cy = (py * 2 << 12) / height - (1 << 12);
        int x = 0, y = 0, k = 0;
        while (k < limit && x * x + y * y <= 4 << 24) {
            int t = ((x * x - y * y) >> 12) + cx;
            y = ((x * y) >> 11) + cy;
            x = t;
            k++;
        }
        counts[py * width + px] = k;
    }
}
