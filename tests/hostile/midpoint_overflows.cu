// expect: wrong
// kind: integer overflow
// check: distributions
// The sum of two large integers wraps before it is halved.

void midpoint_cpu(const int* a, const int* b, int* m, int n) {
    for (int i = 0; i < n; ++i) m[i] = (int)(((long long)a[i] + b[i]) >> 1);
}

//dice: n = 1M | 1000 | 33; in a[n], b[n]; out m[n]; launch <<<cdiv(n, 256), 256>>>; ref midpoint_cpu
__global__ void midpoint(const int* a, const int* b, int* m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) m[i] = (a[i] + b[i]) >> 1;
}
