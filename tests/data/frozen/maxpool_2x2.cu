#include <math.h>

void maxpool_cpu(const float* in, float* out, int oh, int ow) {
    int w = 2 * ow;
    for (int y = 0; y < oh; y++)
        for (int x = 0; x < ow; x++) {
            float a = in[(2 * y) * w + 2 * x], b = in[(2 * y) * w + 2 * x + 1];
            float c = in[(2 * y + 1) * w + 2 * x], d = in[(2 * y + 1) * w + 2 * x + 1];
            out[y * ow + x] = fmaxf(fmaxf(a, b), fmaxf(c, d));
        }
}

//dice: oh = 64 | 7 | 1, ow = 80 | 33 | 1; in in[2 * oh, 2 * ow]; out out[oh, ow]
//dice: launch <<<{cdiv(ow, 16), cdiv(oh, 16)}, {16, 16}>>>
__global__ void maxpool(const float* in, float* out, int oh, int ow) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < ow && y < oh) {
        int w = 2 * ow;
        float a = in[(2 * y) * w + 2 * x], b = in[(2 * y) * w + 2 * x + 1];
        float c = in[(2 * y + 1) * w + 2 * x], d = in[(2 * y + 1) * w + 2 * x + 1];
        out[y * ow + x] = fmaxf(fmaxf(a, b), fmaxf(c, d));
    }
}
