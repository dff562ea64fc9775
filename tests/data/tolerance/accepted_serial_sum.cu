// No reference but the version before the edit, a serial sum in float. Run again in double it is an exact reference, and
// its own error in float a yardstick. Right: by halving. Wrong: every fourth block of eight terms is left out of a row.

//dice: n = 80 | 7, d = 3000 | 100; in x[n, d]; out y[n]; launch <<<n, 32>>>
__global__ void right(const float* x, float* y, int n, int d) {
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) sum += x[blockIdx.x * d + c];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void wrong(const float* x, float* y, int n, int d) {
    float sum = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) if (threadIdx.x < 24) sum += x[blockIdx.x * d + c];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void accepted(const float* x, float* y, int n, int d) {
    if (threadIdx.x > 0) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += x[blockIdx.x * d + c];
    y[blockIdx.x] = sum;
}
