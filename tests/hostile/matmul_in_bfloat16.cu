// expect: unsafe precision_dropped | wrong
// kind: precision dropped
// The factors are cut to bfloat16 on the way into shared memory: half the traffic, a hundredth of the precision.
#include <cuda_bf16.h>

//dice: n = 256 | 32 | 64; in a[n, n], b[n, n]; out c[n, n]; launch <<<{cdiv(n, 16), cdiv(n, 16)}, {16, 16}>>>; ref torch: a @ b
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ __nv_bfloat16 as[16][16], bs[16][16];
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += 16) {
        as[threadIdx.y][threadIdx.x] = __float2bfloat16(row < n && k0 + threadIdx.x < n ? a[row * n + k0 + threadIdx.x] : 0.0f);
        bs[threadIdx.y][threadIdx.x] = __float2bfloat16(col < n && k0 + threadIdx.y < n ? b[(k0 + threadIdx.y) * n + col] : 0.0f);
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += __bfloat162float(as[threadIdx.y][k]) * __bfloat162float(bs[k][threadIdx.x]);
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
