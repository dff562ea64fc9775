// The game of life on a torus: bytes, neighbours counted around the edges.

void life_cpu(const unsigned char* cells, unsigned char* next, int w, int h) {
    for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
            int alive = 0;
            for (int dy = -1; dy <= 1; ++dy)
                for (int dx = -1; dx <= 1; ++dx)
                    if (dx || dy) alive += cells[(y + dy + h) % h * w + (x + dx + w) % w];
            next[y * w + x] = alive == 3 || (alive == 2 && cells[y * w + x]);
        }
}

//dice: w = 256 | 33 | 3, h = 256 | 17 | 5; in cells[h, w]: int(0, 2); out next[h, w]
//dice: launch <<<dim3(cdiv(w, 32), cdiv(h, 4)), dim3(32, 4)>>>; ref life_cpu; exact
__global__ void life(const unsigned char* cells, unsigned char* next, int w, int h) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    int left = x == 0 ? w - 1 : x - 1, right = x == w - 1 ? 0 : x + 1;
    int up = (y == 0 ? h - 1 : y - 1) * w, mid = y * w, down = (y == h - 1 ? 0 : y + 1) * w;
    int alive = cells[up + left] + cells[up + x] + cells[up + right] + cells[mid + left] + cells[mid + right] +
                cells[down + left] + cells[down + x] + cells[down + right];
    next[mid + x] = alive == 3 || (alive == 2 && cells[mid + x] == 1);
}
