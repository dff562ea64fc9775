// Dynamic shared memory sized by a dim, and two outputs.

//dice: n = 4096 | 5, d = 1024 | 65; in x[n, d]; out y[n, d], scale[n]; launch <<<n, 64, d * sizeof(float)>>>
//dice: ref torch: (x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6), torch.sqrt((x * x).mean(1) + 1e-6))
__global__ void rms(const float* x, float* y, float* scale, int n, int d) {
    extern __shared__ float row[];
    __shared__ float part[64];
    float squares = 0.0f;
    for (int c = threadIdx.x; c < d; c += 64) {
        row[c] = x[blockIdx.x * d + c];
        squares += row[c] * row[c];
    }
    part[threadIdx.x] = squares;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    float size = sqrtf(part[0] / d + 1e-6f);
    for (int c = threadIdx.x; c < d; c += 64) y[blockIdx.x * d + c] = row[c] / size;
    if (threadIdx.x == 0) scale[blockIdx.x] = size;
}
