// The prefix sums of a block in two orders: one after the other, and by doubling strides, whose roundings are fewer.
// Right: both. Wrong: exclusive where inclusive is asked for, which is off by one term.

//dice: n = 512 | 100 | 33; in x[n]; out y[n]; launch <<<1, 512>>>; ref torch: torch.cumsum(x, dim=0)
__global__ void right_serial(const float* x, float* y, int n) {
    if (threadIdx.x > 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) y[i] = sum += x[i];
}

__global__ void right_doubling(const float* x, float* y, int n) {
    __shared__ float values[512];
    int i = threadIdx.x;
    values[i] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 1; s < 512; s *= 2) {
        float before = i >= s ? values[i - s] : 0.0f;
        __syncthreads();
        values[i] += before;
        __syncthreads();
    }
    if (i < n) y[i] = values[i];
}

__global__ void wrong(const float* x, float* y, int n) {
    if (threadIdx.x > 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) {
        y[i] = sum;
        sum += x[i];
    }
}
