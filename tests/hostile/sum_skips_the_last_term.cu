// expect: wrong
// kind: work left out
// One term of a long sum is missing.

//dice: n = 4096 | 4 | 3, d = 4096 | 1000 | 5000; in x[n, d]; out y[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref torch: x.sum(dim=1)
__global__ void row_sum(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d - 1; ++c) sum += x[r * d + c];
    y[r] = sum;
}
