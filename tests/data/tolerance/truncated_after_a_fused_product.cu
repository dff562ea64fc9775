// A float cut down to an integer goes the other way where a fused multiply-add rounds once and the reference twice:
// legal at the edge between two integers. Right: fused, and not fused. Wrong: a hundredth less than half is added.

void truncated_after_a_fused_product_cpu(const float* x, int* y, float a, int n) {
    for (int i = 0; i < n; ++i) y[i] = (int)(x[i] * a + 0.5f);
}

//dice: n = 60000 | 1000; in x[n]: uniform(0, 100); out y[n]; launch <<<cdiv(n, 128), 128>>>; set a = 317.13f
//dice: ref truncated_after_a_fused_product_cpu
__global__ void right_fused(const float* x, int* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)fmaf(x[i], a, 0.5f);
}

__global__ void right_plain(const float* x, int* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)__fadd_rn(__fmul_rn(x[i], a), 0.5f);
}

__global__ void wrong(const float* x, int* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)fmaf(x[i], a, 0.49f);
}
