// Four rounds of a Philox-like generator: 32-bit products split into halves, mapped to [0, 1).

void random_cpu(float* y, unsigned int* bits, unsigned int seed, int n) {
    for (int i = 0; i < n; ++i) {
        unsigned int a = (unsigned int)i, b = seed, key = seed ^ 0x9E3779B9u;
        for (int round = 0; round < 4; ++round) {
            unsigned long long p = (unsigned long long)a * 0xD256D193u;
            unsigned int hi = (unsigned int)(p >> 32), lo = (unsigned int)p;
            a = hi ^ key ^ b;
            b = lo;
            key += 0x9E3779B9u;
        }
        bits[i] = a;
        y[i] = (a >> 8) * (1.0f / 16777216.0f);
    }
}

//dice: n = 1M | 1003 | 1; out y[n], bits[n]; launch <<<cdiv(n, 256), 256>>>; set seed = 12345; ref random_cpu
__global__ void random(float* y, unsigned int* bits, unsigned int seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int a = i, b = seed, key = seed ^ 0x9E3779B9u;
#pragma unroll
    for (int round = 0; round < 4; ++round) {
        unsigned int hi = __umulhi(a, 0xD256D193u), lo = a * 0xD256D193u;
        a = hi ^ key ^ b;
        b = lo;
        key += 0x9E3779B9u;
    }
    bits[i] = a;
    y[i] = (a >> 8) * (1.0f / 16777216.0f);
}
