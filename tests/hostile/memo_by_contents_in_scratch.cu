// expect: cheating remembers_results | cheating timed_outputs
// on a GPU: cheating | verified
// host cannot: scratch memory is poisoned before every run, and nothing is timed
// timed: nothing is gained where each launch finds scratch memory as declared, and elsewhere it is found out
// kind: memo in scratch memory
// Each element of the product is kept beside a fingerprint of its row and column, and copied when the same come again.

void matmul_cpu(const float* a, const float* b, float* work, float* c, int n) {
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            float s = 0;
            for (int k = 0; k < n; ++k) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}

//dice: n = 512 | 64 | 33; in a[n, n], b[n, n]; tmp work[2 * n * n]; out c[n, n]
//dice: launch <<<{cdiv(n, 16), cdiv(n, 16)}, {16, 16}>>>; ref matmul_cpu
__global__ void matmul(const float* a, const float* b, float* work, float* c, int n) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= n || col >= n) return;
    int at = row * n + col;
    unsigned int print = 1;
    for (int k = 0; k < n; k += n / 4 + 1)
        print = 31 * print + __float_as_uint(a[row * n + k]) + 7 * __float_as_uint(b[k * n + col]);
    if (__float_as_uint(work[2 * at]) != print) {
        float s = 0;
        for (int k = 0; k < n; ++k) s += a[row * n + k] * b[k * n + col];
        work[2 * at + 1] = s;
        work[2 * at] = __uint_as_float(print);
    }
    c[at] = work[2 * at + 1];
}
