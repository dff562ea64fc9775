#include <math.h>

static void softsign_cpu(int len, const float* in, float* out)
{
    for (int k = 0; k < len; ++k)
        out[k] = in[k] / (1.f + fabsf(in[k]));
}

//dice: len = 100000 | 257 | 1; in in[len]; out out[len]; launch <<<64, 256>>>
__global__ void softsign(int len, const float* in, float* out)
{
    int stride = blockDim.x * gridDim.x;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < len; k += stride)
        out[k] = in[k] / (1.f + fabsf(in[k]));
}
