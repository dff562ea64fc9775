// expect: cheating timed_outputs | cheating remembers_results
// on a GPU: cheating | verified
// host cannot: scratch memory is poisoned before every run, and nothing is timed
// timed: nothing is gained where each launch finds scratch memory as declared, and elsewhere it is found out
// kind: memo in scratch memory
// The product is left in a scratch buffer with a mark, and when the mark is still there it is only copied.

void matmul_cpu(const float* a, const float* b, float* work, float* c, int n) {
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            float s = 0;
            for (int k = 0; k < n; ++k) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}

//dice: n = 256 | 64 | 33; in a[n, n], b[n, n]; tmp work[2 * n * n]; out c[n, n]
//dice: launch <<<{cdiv(n, 16), cdiv(n, 16)}, {16, 16}>>>; ref matmul_cpu
__global__ void matmul(const float* a, const float* b, float* work, float* c, int n) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= n || col >= n) return;
    int at = row * n + col;
    if (__float_as_uint(work[2 * at]) != 0x600dda7au) {
        float s = 0;
        for (int k = 0; k < n; ++k) s += a[row * n + k] * b[k * n + col];
        work[2 * at + 1] = s;
        work[2 * at] = __uint_as_float(0x600dda7au);
    }
    c[at] = work[2 * at + 1];
}
