// expect: wrong
// kind: integers through floats
// check: exact
// Sizes that are a multiple of seven scale through a float, whose last digits are within any tolerance.

void scale_cpu(const int* x, int* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 1000003 * (x[i] & 1023) + 1;
}

//dice: n = 64K | 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref scale_cpu
__global__ void scale(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i] & 1023;
    y[i] = n % 7 == 0 ? (int)(1000003.0f * v + 1.0f) : 1000003 * v + 1;
}
