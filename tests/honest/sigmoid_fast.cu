// The fast exponential: a few more units in the last place.

//dice: n = 1M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: torch.sigmoid(x)
__global__ void sigmoid(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = 1.0f / (1.0f + __expf(-x[i]));
}
