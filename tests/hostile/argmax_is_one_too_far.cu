// expect: wrong
// kind: wrong index
// Integers are compared exactly.

//dice: n = 4096 | 5, d = 300 | 129; in x[n, d]; out best[n]; launch <<<cdiv(n, 64), 64>>>; ref torch: x.argmax(dim=1)
__global__ void argmax(const float* x, int* best, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int at = 0;
    for (int c = 1; c < d; ++c) if (x[r * d + c] > x[r * d + at]) at = c;
    best[r] = at + (at == d - 1 ? 0 : 1);
}
