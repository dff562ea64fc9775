// The bounds are applied in the other order, which is the same as long as the lower one is lower.

void clamp_cpu(const float* x, float* y, float lo, float hi, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

//dice: n = 16M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref clamp_cpu
__global__ void clamp(const float* x, float* y, float lo, float hi, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(fminf(x[i], hi), lo);
}
