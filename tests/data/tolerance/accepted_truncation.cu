// No reference but the version before the edit, which cuts a float down. Right: a fused product, one step off at an edge
// now and then. Wrong: rounded to nearest.

//dice: n = 40000 | 1000; in x[n]: uniform(0, 100); out y[n]; launch <<<cdiv(n, 128), 128>>>; set a = 317.13f
__global__ void right(const float* x, int* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)fmaf(x[i], a, 3.7f);
}

__global__ void wrong(const float* x, int* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2int_rn(fmaf(x[i], a, 3.7f));
}

__global__ void accepted(const float* x, int* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)__fadd_rn(__fmul_rn(x[i], a), 3.7f);
}
