//dice: n = 40000 | 123; in R[n], G[n], B[n]; out Y[n]; launch <<<cdiv(n, 512), 512>>>
//dice: ref torch: 0.2126 * R + 0.7152 * G + 0.0722 * B
__global__ void luma(const float *R, const float *G, const float *B, float *Y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        Y[i] = 0.2126f * R[i] + 0.7152f * G[i] + 0.0722f * B[i];
}
