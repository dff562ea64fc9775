//dice: m = 12345 | 64; in pred[m], truth[m]; out grad[m]; launch <<<cdiv(m, 64), 64>>>
//dice: ref torch: torch.tanh(pred - truth)
__global__ void logcosh_gradient(float *grad, const float *pred, const float *truth, int m)
{
    int t = blockDim.x * blockIdx.x + threadIdx.x;
    if (t < m) grad[t] = tanhf(pred[t] - truth[t]);
}
