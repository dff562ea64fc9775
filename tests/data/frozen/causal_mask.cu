void causal_mask_cpu(float *scores, float fill, int T)
{
    for (int q = 0; q < T; q++)
        for (int k = 0; k < T; k++)
            if (k > q)
                scores[q * T + k] = fill;
}

//dice: T = 120 | 17 | 1; io scores[T, T]; set fill = -10000.0; launch <<<{cdiv(T, 16), cdiv(T, 16)}, {16, 16}>>>
__global__ void causal_mask(float *scores, float fill, int T)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    int q = blockIdx.y * blockDim.y + threadIdx.y;
    if (q < T && k < T && k > q)
        scores[q * T + k] = fill;
}
