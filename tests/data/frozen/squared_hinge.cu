void squared_hinge_cpu(const double *score, const double *target, double margin, double *out, int batch)
{
    for (int b = 0; b < batch; ++b) {
        double gap = margin - target[b] * score[b];
        out[b] = gap > 0.0 ? gap * gap : 0.0;
    }
}

//dice: batch = 20000 | 129 | 2; in score[batch], target[batch]; out out[batch]; set margin = 1.5
//dice: launch <<<cdiv(batch, 128), 128>>>
__global__ void squared_hinge(const double *score, const double *target, double margin, double *out, int batch)
{
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b < batch) {
        double gap = margin - target[b] * score[b];
        out[b] = gap > 0.0 ? gap * gap : 0.0;
    }
}
