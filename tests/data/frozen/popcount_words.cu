// Kernighan's loop, so that it reads the same on both sides
void popcount_words_cpu(const unsigned *w, int *bits, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned v = w[i];
        int c = 0;
        while (v) {
            v &= v - 1;
            c++;
        }
        bits[i] = c;
    }
}

//dice: n = 20000 | 65 | 1; in w[n]: int(0, 4294967296); out bits[n]; launch <<<cdiv(n, 128), 128>>>
__global__ void popcount_words(const unsigned *w, int *bits, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned v = w[i];
        int c = 0;
        while (v) {
            v &= v - 1;
            c++;
        }
        bits[i] = c;
    }
}
