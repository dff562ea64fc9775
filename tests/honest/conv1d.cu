//dice: n = 1M | 1000, k = 9 | 9; in x[n], taps[k]; out y[n - k + 1]; launch <<<cdiv(n - k + 1, 128), 128>>>
//dice: ref torch: F.conv1d(x[None, None], taps[None, None])
__global__ void conv1d(const float* x, const float* taps, float* y, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n - k + 1) return;
    float sum = 0.0f;
    for (int j = 0; j < k; ++j) sum += x[i + j] * taps[j];
    y[i] = sum;
}
