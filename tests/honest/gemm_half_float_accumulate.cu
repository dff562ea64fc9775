// Half in and out; the products are summed in single precision.
#include <cuda_fp16.h>

//dice: with TILE = 16; M = 256 | 33, N = 256 | 47, K = 256 | 50; in A[M, K], B[K, N]; out C[M, N]
//dice: launch <<<{cdiv(N, TILE), cdiv(M, TILE)}, {TILE, TILE}>>>; ref torch: A @ B; flops 2 * M * N * K
template <int TILE>
__global__ void hgemm(const __half* A, const __half* B, __half* C, int M, int N, int K) {
    __shared__ __half a[TILE][TILE];
    __shared__ __half b[TILE][TILE + 2];
    const int col = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    float acc = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        const int ak = t * TILE + threadIdx.x, bk = t * TILE + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < M && ak < K ? A[row * K + ak] : __float2half(0.0f);
        b[threadIdx.y][threadIdx.x] = col < N && bk < K ? B[bk * N + col] : __float2half(0.0f);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) acc += __half2float(a[threadIdx.y][k]) * __half2float(b[k][threadIdx.x]);
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = __float2half(acc);
}
