// expect: wrong
// kind: overflow in between
// The maximum begins at zero, which is right until a whole row is far below it.

void softmax_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float top = x[r * d], total = 0;
        for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
        for (int c = 0; c < d; ++c) total += expf(x[r * d + c] - top);
        for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c] - top) / total;
    }
}

//dice: n = 4096, d = 1000; in x[n * d]; out y[n * d]; launch <<<cdiv(n, 128), 128>>>; ref softmax_cpu
__global__ void softmax(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float top = 0, total = 0;
    for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
    for (int c = 0; c < d; ++c) total += expf(x[r * d + c] - top);
    for (int c = 0; c < d; ++c) y[r * d + c] = expf(x[r * d + c] - top) / total;
}
