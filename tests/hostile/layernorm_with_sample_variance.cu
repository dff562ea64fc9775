// expect: wrong
// kind: wrong formula
// Divides by d - 1: off by half a percent at d = 100, by less for longer rows.

//dice: n = 4096 | 3, d = 1024 | 1000; in x[n, d]; out y[n, d]; launch <<<n, 32>>>
//dice: ref torch: F.layer_norm(x, (d,))
__global__ void layernorm(const float* x, float* y, int n, int d) {
    float sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) sum += x[blockIdx.x * d + c];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, s);
    float mean = sum / d;
    for (int c = threadIdx.x; c < d; c += 32) {
        float off = x[blockIdx.x * d + c] - mean;
        squares += off * off;
    }
    for (int s = 16; s > 0; s >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, s);
    float scale = rsqrtf(squares / (d > 1 ? d - 1 : 1) + 1e-5f);
    for (int c = threadIdx.x; c < d; c += 32) y[blockIdx.x * d + c] = (x[blockIdx.x * d + c] - mean) * scale;
}
