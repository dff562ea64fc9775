// bfloat16 tensors, statistics in float.
#include <cuda_bf16.h>

//dice: tokens = 1024 | 3 | 17, hidden = 1024 | 200 | 65; in x[tokens, hidden], weight[hidden]; out y[tokens, hidden]
//dice: launch <<<tokens, 128>>>; set eps = 1e-5f; ref torch: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight
__global__ void rms_norm(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* y, float eps, int tokens,
                         int hidden) {
    __shared__ float partial[4];
    const __nv_bfloat16* row = x + blockIdx.x * hidden;
    float sq = 0.0f;
    for (int h = threadIdx.x; h < hidden; h += blockDim.x) {
        float v = __bfloat162float(row[h]);
        sq += v * v;
    }
    for (int offset = 16; offset > 0; offset /= 2) sq += __shfl_xor_sync(0xffffffff, sq, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sq;
    __syncthreads();
    float inv = rsqrtf((partial[0] + partial[1] + partial[2] + partial[3]) / hidden + eps);
    for (int h = threadIdx.x; h < hidden; h += blockDim.x)
        y[blockIdx.x * hidden + h] = __float2bfloat16(__bfloat162float(row[h]) * inv * __bfloat162float(weight[h]));
}
