// Unsigned arithmetic wraps.

void mix_cpu(const unsigned int* x, unsigned int* y, int n) {
    for (int i = 0; i < n; ++i) {
        unsigned int v = x[i];
        v ^= v >> 16; v *= 0x7feb352du; v ^= v >> 15; v *= 0x846ca68bu; v ^= v >> 16;
        y[i] = v;
    }
}

//dice: n = 16M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref mix_cpu
__global__ void mix(const unsigned int* x, unsigned int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int v = x[i];
    v ^= v >> 16; v *= 0x7feb352du; v ^= v >> 15; v *= 0x846ca68bu; v ^= v >> 16;
    y[i] = v;
}
