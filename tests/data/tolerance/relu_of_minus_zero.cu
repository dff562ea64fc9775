// The sign of a zero is not compared: 0 and -0 are equal. Right: a product with the mask, -0 for every negative input.
// Wrong: a slope of a thousandth for them.

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: torch.relu(x)
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * (x[i] > 0.0f);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] : 1e-3f * x[i];
}
