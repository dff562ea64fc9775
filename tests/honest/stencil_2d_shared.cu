// Five points with a tile and its halo in shared memory; outside the grid the value is zero.
#define TX 32
#define TY 8

void laplace_cpu(const float* u, float* v, int w, int h) {
    for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
            float c = u[y * w + x];
            float l = x > 0 ? u[y * w + x - 1] : 0.0f, r = x + 1 < w ? u[y * w + x + 1] : 0.0f;
            float t = y > 0 ? u[(y - 1) * w + x] : 0.0f, b = y + 1 < h ? u[(y + 1) * w + x] : 0.0f;
            v[y * w + x] = l + r + t + b - 4.0f * c;
        }
}

//dice: w = 1024 | 33 | 1 | 100, h = 1024 | 9 | 1 | 77; in u[h, w]; out v[h, w]
//dice: launch <<<{cdiv(w, TX), cdiv(h, TY)}, {TX, TY}>>>; ref laplace_cpu
__global__ void laplace(const float* u, float* v, int w, int h) {
    __shared__ float tile[TY + 2][TX + 2];
    const int x0 = blockIdx.x * TX - 1, y0 = blockIdx.y * TY - 1;
    for (int i = threadIdx.y * TX + threadIdx.x; i < (TX + 2) * (TY + 2); i += TX * TY) {
        int tx = i % (TX + 2), ty = i / (TX + 2);
        int gx = x0 + tx, gy = y0 + ty;
        tile[ty][tx] = gx >= 0 && gx < w && gy >= 0 && gy < h ? u[gy * w + gx] : 0.0f;
    }
    __syncthreads();
    const int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y;
    if (x >= w || y >= h) return;
    const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    v[y * w + x] = tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx] - 4.0f * tile[ty][tx];
}
