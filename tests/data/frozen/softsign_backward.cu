//dice: n = 32768 | 1001; in x[n], dy[n]; out dx[n]; launch <<<cdiv(n, 512), 512>>>
//dice: ref torch: dy / ((1 + torch.abs(x)) * (1 + torch.abs(x)))
__global__ void softsign_grad(const float* x, const float* dy, float* dx, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float d = 1.0f + fabsf(x[i]);
        dx[i] = dy[i] / (d * d);
    }
}
