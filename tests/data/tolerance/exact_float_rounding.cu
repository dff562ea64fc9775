// `exact` asks for the last bit of a float, here of halves rounded to integers. Right: half up, as asked. Wrong: half to
// even; every other tie is off by one.

void exact_float_rounding_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = floorf(x[i] * 0.5f + 0.5f);
}

//dice: n = 3000; in x[n]: int(-100, 100); out y[n]; launch <<<cdiv(n, 128), 128>>>; ref exact_float_rounding_cpu; exact
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = floorf((x[i] + 1.0f) / 2.0f);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = rintf(x[i] * 0.5f);
}
