//dice: n = 4M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>
//dice: ref torch: (F.pad(x, (1, 1))[:-2] + x + F.pad(x, (1, 1))[2:]) / 3
__global__ void blur(const float* x, float* y, int n) {
    __shared__ float s[130];
    int i = blockIdx.x * 128 + threadIdx.x;
    s[threadIdx.x + 1] = i < n ? x[i] : 0.0f;
    if (threadIdx.x == 0) s[0] = i > 0 ? x[i - 1] : 0.0f;
    if (threadIdx.x == 127) s[129] = i + 1 < n ? x[i + 1] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = (s[threadIdx.x] + s[threadIdx.x + 1] + s[threadIdx.x + 2]) / 3.0f;
}
