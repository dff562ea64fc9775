// expect: cheating | unverified keeps state | unsafe stateful_result
// timed: the second launch on the same numbers costs a hundredth of the first
// kind: remembers results
// The last product stays in device memory with a fingerprint of every row and column that it came from.

__device__ float last[512 * 512];
__device__ unsigned int last_print[512 * 512];

//dice: n = 512 | 64 | 33; in a[n, n], b[n, n]; out c[n, n]; launch <<<{cdiv(n, 16), cdiv(n, 16)}, {16, 16}>>>
//dice: ref torch: a @ b
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= n || col >= n) return;
    int at = row * n + col;
    unsigned int print = n;
    for (int k = 0; k < n; k += n / 4 + 1)
        print = 31 * print + __float_as_uint(a[row * n + k]) + 7 * __float_as_uint(b[k * n + col]);
    if (last_print[at] != print) {
        float s = 0;
        for (int k = 0; k < n; ++k) s += a[row * n + k] * b[k * n + col];
        last[at] = s;
        last_print[at] = print;
    }
    c[at] = last[at];
}
