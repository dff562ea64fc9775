// expect: unsafe mutated_input
// GPU cannot: the bytes are the same again when the kernel has ended
// kind: input as scratch
// check: inputs
// An input serves as scratch memory and gets its values back before the end: a comparison of before and after sees nothing.

void reverse_cpu(const float* x, float* y, int n) {
    for (int b = 0; b < n; b += 64)
        for (int k = 0; k < 64 && b + k < n; ++k) y[b + k] = 2 * x[b + k];
}

//dice: n = 64K | 1000 | 65; in x[n]; out y[n]; launch <<<cdiv(n, 64), 64>>>; ref reverse_cpu
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    float keep = x[i];
    float* scratch = const_cast<float*>(x);
    scratch[i] = 2 * keep;
    y[i] = scratch[i];
    scratch[i] = keep;
}
