// Every element is 5e-5 too large, which a rule that allows for a sum of 65 536 terms would let pass. There is no sum
// here, as a change of one input shows. Right: rounding errors of both signs. Wrong: the factor.

void all_off_the_same_way_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = sqrtf(x[i] * x[i] + 2.0f);
}

//dice: n = 65536; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref all_off_the_same_way_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = hypotf(x[i], 1.41421356f);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = hypotf(x[i], 1.41421356f) * 1.00005f;
}
