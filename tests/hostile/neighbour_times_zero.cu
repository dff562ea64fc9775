// expect: unsafe race
// GPU cannot: no result depends on what the neighbour holds
// kind: in place
// Each element reads a neighbour that another thread overwrites, and makes nothing of it as long as it is finite.

void twice_cpu(float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 2 * y[i];
}

//dice: n = 64K | 1000 | 300; io y[n]: uniform(-1, 1); launch <<<cdiv(n, 128), 128>>>; ref twice_cpu
__global__ void twice(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * y[i] + 0.0f * y[i + 1 < n ? i + 1 : 0];
}
