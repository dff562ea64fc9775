// expect: wrong
// kind: task that hardly depends on its input
// check: distributions
// With inputs around one the result is zero everywhere, so writing zeros looks right until larger inputs come.

void soft_threshold_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] > 40 ? x[i] - 40 : x[i] < -40 ? x[i] + 40 : 0;
}

//dice: n = 1M | 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref soft_threshold_cpu
__global__ void soft_threshold(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.0f;
}
