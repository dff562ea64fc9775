//dice: w = 8192 | 100, h = 8192 | 77; in a[h, w]; out b[w, h]; launch <<<{cdiv(w, 32), cdiv(h, 32)}, {32, 8}>>>
//dice: ref torch: a.T
__global__ void transpose(const float* a, float* b, int w, int h) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) if (x < w && y + j < h) tile[threadIdx.y + j][threadIdx.x] = a[(y + j) * w + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) if (x < h && y + j < w) b[(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}
