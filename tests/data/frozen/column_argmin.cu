// index of the smallest value of each column; the first one wins
void column_argmin_cpu(int *where, const double *mat, int h, int w)
{
    for (int x = 0; x < w; x++) {
        int at = 0;
        double least = mat[x];
        for (int y = 1; y < h; y++) {
            if (mat[y * w + x] < least) {
                least = mat[y * w + x];
                at = y;
            }
        }
        where[x] = at;
    }
}

//dice: h = 90 | 5, w = 700 | 31; in mat[h, w]: uniform(0, 1); out where[w]; launch <<<cdiv(w, 64), 64>>>
__global__ void column_argmin(int *where, const double *mat, int h, int w)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x < w) {
        int at = 0;
        double least = mat[x];
        for (int y = 1; y < h; y++) {
            if (mat[y * w + x] < least) {
                least = mat[y * w + x];
                at = y;
            }
        }
        where[x] = at;
    }
}
