// Escape counts on a grid: as many iterations as the point needs, in double precision.

void mandelbrot_cpu(int* count, double x0, double y0, double step, int w, int h) {
    for (int j = 0; j < h; ++j)
        for (int i = 0; i < w; ++i) {
            double cx = x0 + i * step, cy = y0 + j * step, x = 0, y = 0;
            int k = 0;
            for (; k < 64 && x * x + y * y <= 4.0; ++k) {
                double t = x * x - y * y + cx;
                y = 2 * x * y + cy;
                x = t;
            }
            count[j * w + i] = k;
        }
}

//dice: w = 256 | 33, h = 256 | 17; out count[h, w]; launch <<<{cdiv(w, 16), cdiv(h, 16)}, {16, 16}>>>
//dice: set x0 = -0.5, y0 = 0.25, step = 0.03125; ref mandelbrot_cpu
__global__ void mandelbrot(int* count, double x0, double y0, double step, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= w || j >= h) return;
    double cx = x0 + i * step, cy = y0 + j * step, x = 0, y = 0;
    int k = 0;
    while (k < 64 && x * x + y * y <= 4.0) {
        double t = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = t;
        ++k;
    }
    count[j * w + i] = k;
}
