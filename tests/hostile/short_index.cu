// expect: wrong | unsafe unwritten_output
// kind: narrow index
// The index is too narrow for the benchmark's size and right for every small one.

void scale_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 2 * x[i];
}

//dice: n = 16M; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref scale_cpu
__global__ void scale(const float* x, float* y, int n) {
    unsigned short i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
