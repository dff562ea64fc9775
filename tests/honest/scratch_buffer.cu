// A buffer that only the kernel itself uses, and a mask of bools.

//dice: n = 1M | 1000; in x[n]; tmp work[n]; out positive[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: x * 2 > 1
__global__ void positive(const float* x, float* work, bool* positive, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    work[i] = x[i] * 2.0f;
    positive[i] = work[i] > 1.0f;
}
