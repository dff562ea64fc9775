// Right: log-sum-exp less the label's logit. Wrong: the logarithm of a probability that was kept from zero by 1e-5.

void cross_entropy_cpu(const float* x, const int* label, float* loss, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float top = x[r * d], sum = 0.0f;
        for (int c = 1; c < d; ++c) top = x[r * d + c] > top ? x[r * d + c] : top;
        for (int c = 0; c < d; ++c) sum += expf(x[r * d + c] - top);
        loss[r] = logf(sum) + top - x[r * d + label[r]];
    }
}

//dice: n = 150 | 5, d = 80 | 33; in x[n, d], label[n]: int(0, d); out loss[n]; launch <<<cdiv(n, 32), 32>>>
//dice: ref cross_entropy_cpu
__global__ void right(const float* x, const int* label, float* loss, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float top = -INFINITY, sum = 0.0f;
    for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
    for (int c = 0; c < d; ++c) sum += __expf(x[r * d + c] - top);
    loss[r] = __logf(sum) - (x[r * d + label[r]] - top);
}

__global__ void wrong(const float* x, const int* label, float* loss, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float top = -INFINITY, sum = 0.0f;
    for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
    for (int c = 0; c < d; ++c) sum += expf(x[r * d + c] - top);
    loss[r] = -logf(expf(x[r * d + label[r]] - top) / sum + 1e-5f);
}
