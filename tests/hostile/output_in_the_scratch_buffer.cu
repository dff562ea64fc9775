// expect: unsafe never_launched | unsafe unwritten_output
// kind: wrong pointer
// The result is left in a scratch buffer that nobody looks at.

void scale_cpu(const float* x, float* work, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 3 * x[i];
}

//dice: n = 1M | 1000 | 33; in x[n]; tmp work[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref scale_cpu
__global__ void scale(const float* x, float* work, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) work[i] = 3 * x[i];
}
