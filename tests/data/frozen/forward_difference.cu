//dice: n = 30000 | 100 | 2; in f[n]; out df[n - 1]; set h = 0.5; launch <<<cdiv(n - 1, 256), 256>>>
//dice: ref torch: (f[1:] - f[:-1]) / h
__global__ void forward_difference(const float* f, float* df, float h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1)
        df[i] = (f[i + 1] - f[i]) / h;
}
