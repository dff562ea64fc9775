// Every element of a wide softmax is tiny, so an absolute tolerance takes zeros for it. The rule is relative to each
// element. Right: three reductions by halving, off by a few roundings of its own size. Wrong: zeros.

//dice: n = 6 | 3, d = 2048 | 65; in x[n, d]; out y[n, d]; launch <<<n, 64>>>; ref torch: torch.softmax(x, dim=1)
__global__ void right(const float* x, float* y, int n, int d) {
    __shared__ float part[64];
    const float* row = x + blockIdx.x * d;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < d; c += 64) top = fmaxf(top, row[c]);
    part[threadIdx.x] = top;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    top = part[0];
    __syncthreads();
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += 64) sum += __expf(row[c] - top);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    float scale = 1.0f / part[0];
    for (int c = threadIdx.x; c < d; c += 64) y[blockIdx.x * d + c] = __expf(row[c] - top) * scale;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    for (int c = threadIdx.x; c < d; c += 64) y[blockIdx.x * d + c] = 0.0f;
}
