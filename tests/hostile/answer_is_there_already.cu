// expect: wrong | unsafe unwritten_output | unverified
// kind: output that happens to be there
// The rows are in order before they are sorted, so doing nothing is right.

void relu_cpu(float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = y[i] > 0 ? y[i] : 0;
}

//dice: n = 1M | 1000 | 33; io y[n]: uniform(0, 1); launch <<<cdiv(n, 256), 256>>>; ref relu_cpu
__global__ void relu(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && y[i] < -1e30f) y[i] = 0.0f;
}
