//dice: batch = 256 | 9, classes = 64 | 5; in z[batch, classes]: uniform(-2, 2); out out[batch]
//dice: launch <<<cdiv(batch, 32), 32>>>; ref torch: torch.logsumexp(z, dim=1)
__global__ void lse_rows(double *out, const double *z, int batch, int classes)
{
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= batch) return;
    double total = 0.0;
    for (int k = 0; k < classes; k++)
        total += exp(z[b * classes + k]);
    out[b] = log(total);
}
