// Right: the maximum taken off and put back, by intrinsics; near a logarithm of 1 the sum of exponentials is what counts.
// Wrong: the same with the sum begun at 1e-3 against a logarithm of zero, which is 1e-5 of the sum.

//dice: n = 100 | 5, d = 80 | 33; in x[n, d]; out y[n]; launch <<<cdiv(n, 32), 32>>>; ref torch: torch.logsumexp(x, dim=1)
__global__ void right(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float top = -INFINITY, sum = 0.0f;
    for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
    for (int c = 0; c < d; ++c) sum += __expf(x[r * d + c] - top);
    y[r] = top + __logf(sum);
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float top = -INFINITY, sum = 1e-3f;
    for (int c = 0; c < d; ++c) top = fmaxf(top, x[r * d + c]);
    for (int c = 0; c < d; ++c) sum += expf(x[r * d + c] - top);
    y[r] = top + logf(sum);
}
