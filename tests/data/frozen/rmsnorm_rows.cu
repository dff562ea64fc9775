//dice: R = 200 | 7, C = 64 | 17; in inp[R, C]: uniform(0.5, 3), w[C]; out out[R, C]; launch <<<cdiv(R, 32), 32>>>; tol 1e-4
//dice: ref torch: inp / torch.sqrt(torch.mean(inp * inp, dim=1, keepdim=True) + 1e-6) * w
__global__ void rmsnorm(float* out, const float* inp, const float* w, int R, int C)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= R) return;
    float ss = 0.0f;
    for (int c = 0; c < C; c++)
        ss += inp[row * C + c] * inp[row * C + c];
    float scale = 1.0f / sqrtf(ss / C + 1e-6f);
    for (int c = 0; c < C; c++)
        out[row * C + c] = inp[row * C + c] * scale * w[c];
}
