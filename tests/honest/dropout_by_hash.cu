// A mask from an integer hash of position and seed; what is kept is scaled up.

__host__ __device__ inline unsigned int mix(unsigned int v) {
    v ^= v >> 16;
    v *= 0x45d9f3bu;
    v ^= v >> 16;
    v *= 0x45d9f3bu;
    return v ^ (v >> 16);
}

void dropout_cpu(const float* x, float* y, unsigned char* mask, unsigned int seed, int n) {
    for (int i = 0; i < n; ++i) {
        mask[i] = (mix(i ^ seed) & 0xffff) >= 13107;
        y[i] = mask[i] ? x[i] * 1.25f : 0.0f;
    }
}

//dice: n = 256K | 1000 | 7; in x[n]; out y[n], mask[n]; launch <<<cdiv(n, 4 * 128), 128>>>; set seed = 77; ref dropout_cpu
__global__ void dropout(const float* x, float* y, unsigned char* mask, unsigned int seed, int n) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        int i = first + k;
        if (i >= n) break;
        bool keep = (mix(i ^ seed) & 0xffffu) >= 13107u;
        mask[i] = keep;
        y[i] = keep ? x[i] * 1.25f : 0.0f;
    }
}
