// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: missing barrier
// A tree sum whose steps do not wait for each other.

//dice: n = 4096 | 5 | 2, d = 1024 | 300 | 1000; in x[n, d]; out y[n]; launch <<<n, 256>>>
//dice: ref torch: x.sum(dim=1)
__global__ void row_sum(const float* x, float* y, int n, int d) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += 256) sum += x[blockIdx.x * d + c];
    part[threadIdx.x] = sum;
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
