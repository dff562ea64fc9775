#include <cuda_runtime.h>

#define BLOCK 16

void transpose_cpu(const float* in, float* out, int width, int height) {
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            out[x * height + y] = in[y * width + x];
        }
    }
}

//dice: width = 1024 | 77 | 5, height = 512 | 33 | 9; in in[height, width]; out out[width, height]
//dice: launch <<<{cdiv(width, BLOCK), cdiv(height, BLOCK)}, {BLOCK, BLOCK}>>>; ref transpose_cpu; tol exact
__global__ void transpose(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        out[x * height + y] = in[y * width + x];
    }
}
