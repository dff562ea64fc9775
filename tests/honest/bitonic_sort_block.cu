// Each block sorts its 512 keys in shared memory; the last block is filled up with the greatest key.
#include <limits.h>

void sort_blocks_cpu(const int* keys, int* sorted, int n) {
    for (int b = 0; b < n; b += 512) {
        int end = b + 512 < n ? b + 512 : n;
        for (int i = b; i < end; ++i) {
            int v = keys[i], j = i;
            for (; j > b && sorted[j - 1] > v; --j) sorted[j] = sorted[j - 1];
            sorted[j] = v;
        }
    }
}

//dice: n = 64K | 1000 | 513 | 1; in keys[n]; out sorted[n]; launch <<<cdiv(n, 512), 256>>>; ref sort_blocks_cpu
__global__ void bitonic_sort(const int* keys, int* sorted, int n) {
    __shared__ int s[512];
    const int base = blockIdx.x * 512;
    for (int i = threadIdx.x; i < 512; i += blockDim.x) s[i] = base + i < n ? keys[base + i] : INT_MAX;
    for (int k = 2; k <= 512; k *= 2) {
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            const int i = 2 * threadIdx.x - (threadIdx.x & (j - 1));
            const bool up = (i & k) == 0;
            const int a = s[i], b = s[i + j];
            if ((a > b) == up) {
                s[i] = b;
                s[i + j] = a;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 512; i += blockDim.x)
        if (base + i < n) sorted[base + i] = s[i];
}
