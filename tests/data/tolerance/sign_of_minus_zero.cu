// copysign sees the sign of -0. Right: it reads the sign bit. Wrong: it compares with zero, which says of -0 that it is
// not negative; the inputs of ordinary size never show it.

void sign_of_minus_zero_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = copysignf(2.0f, x[i]);
}

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref sign_of_minus_zero_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (__float_as_uint(x[i]) >> 31) ? -2.0f : 2.0f;
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? -2.0f : 2.0f;
}
