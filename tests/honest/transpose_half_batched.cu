// A stack of half matrices, one per z block.
#include <cuda_fp16.h>
constexpr int T = 16;

//dice: b = 4 | 3 | 1, h = 128 | 33 | 1, w = 128 | 20 | 17; in x[b, h, w]; out y[b, w, h]
//dice: launch <<<dim3(cdiv(w, T), cdiv(h, T), b), dim3(T, T)>>>; ref torch: x.transpose(1, 2)
__global__ void transpose(const __half* __restrict__ x, __half* __restrict__ y, int b, int h, int w) {
    __shared__ __half tile[T][T + 1];
    const size_t base = (size_t)blockIdx.z * h * w;
    int col = blockIdx.x * T + threadIdx.x, row = blockIdx.y * T + threadIdx.y;
    if (row < h && col < w) tile[threadIdx.y][threadIdx.x] = x[base + (size_t)row * w + col];
    __syncthreads();
    col = blockIdx.y * T + threadIdx.x;
    row = blockIdx.x * T + threadIdx.y;
    if (row < w && col < h) y[base + (size_t)row * h + col] = tile[threadIdx.x][threadIdx.y];
}
