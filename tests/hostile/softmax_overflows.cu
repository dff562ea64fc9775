// expect: wrong
// kind: overflow in between
// Right for small inputs; exp overflows for large ones, since the row's maximum is not subtracted.

//dice: n = 4096 | 3 | 2, d = 4096 | 1000 | 77; in x[n, d]; out y[n, d]; launch <<<n, 32>>>
//dice: ref torch: torch.softmax(x, dim=1)
__global__ void softmax(const float* x, float* y, int n, int d) {
    float total = 0.0f;
    for (int c = threadIdx.x; c < d; c += 32) total += expf(x[blockIdx.x * d + c]);
    for (int s = 16; s > 0; s >>= 1) total += __shfl_xor_sync(0xffffffff, total, s);
    for (int c = threadIdx.x; c < d; c += 32) y[blockIdx.x * d + c] = expf(x[blockIdx.x * d + c]) / total;
}
