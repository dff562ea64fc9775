#include <stdint.h>

void rotl_cpu(const uint32_t* in, uint32_t* out, int shift, int n) {
    for (int i = 0; i < n; ++i)
        out[i] = (in[i] << shift) | (in[i] >> (32 - shift));
}

//dice: n = 30000 | 127; in in[n]: int(0, 4294967296); out out[n]; set shift = 7; launch <<<cdiv(n, 256), 256>>>
__global__ void rotl(const uint32_t* in, uint32_t* out, int shift, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uint32_t v = in[i];
        out[i] = (v << shift) | (v >> (32 - shift));
    }
}
