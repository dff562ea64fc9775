// A luma of three products: which of them a compiler fuses decides the last bit of the sum, and at an edge the byte.
// Right: fused from the left, and from the right. Wrong: one weight has lost its last digit.

void truncated_sum_of_products_cpu(const float* r, const float* g, const float* b, int* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (int)(0.299f * r[i] + 0.587f * g[i] + 0.114f * b[i]);
}

//dice: n = 50000 | 1000; in r[n]: uniform(0, 65535), g[n]: uniform(0, 65535), b[n]: uniform(0, 65535); out y[n]
//dice: launch <<<cdiv(n, 128), 128>>>; ref truncated_sum_of_products_cpu
__global__ void right_from_the_left(const float* r, const float* g, const float* b, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)fmaf(0.114f, b[i], fmaf(0.587f, g[i], 0.299f * r[i]));
}

__global__ void right_from_the_right(const float* r, const float* g, const float* b, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)fmaf(0.299f, r[i], fmaf(0.587f, g[i], 0.114f * b[i]));
}

__global__ void wrong(const float* r, const float* g, const float* b, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)(0.299f * r[i] + 0.587f * g[i] + 0.11f * b[i]);
}
