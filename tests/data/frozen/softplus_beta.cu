// softplus with a slope: log(1 + exp(beta * x)) / beta
//dice: count = 40000 | 513 | 31; in input[count]: uniform(-4, 4); out output[count]; set beta = 2.0
//dice: launch <<<cdiv(count, 128), 128>>>; tol 1e-4 1e-5; ref torch: torch.log(1 + torch.exp(beta * input)) / beta
__global__ void SoftplusForward(float* __restrict__ output, const float* __restrict__ input, float beta, unsigned int count)
{
    const unsigned int idx = threadIdx.x + blockIdx.x * blockDim.x;
    if (idx >= count) return;
    output[idx] = logf(1.0f + expf(beta * input[idx])) / beta;
}
