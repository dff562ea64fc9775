// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: missing barrier
// The tile is read before all of it is written.
#define TILE 16

//dice: h = 2048 | 50 | 33, w = 2048 | 40 | 17; in a[h, w]; out b[w, h]
//dice: launch <<<{cdiv(w, TILE), cdiv(h, TILE)}, {TILE, TILE}>>>; ref torch: a.t()
__global__ void transpose(const float* a, float* b, int h, int w) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < w && y < h) tile[threadIdx.y][threadIdx.x] = a[y * w + x];
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < h && y < w) b[y * h + x] = tile[threadIdx.x][threadIdx.y];
}
