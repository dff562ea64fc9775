// expect: unsafe timeout | unsafe deadlock | unsafe race
// on a GPU: unsafe occupancy_dependent | unsafe timeout
// kind: waits for another block
// check: occupancy
// All blocks meet at a hand-made barrier, which ends only where the device has room for all of them at once.

void mean_free_cpu(const float* x, float* sums, int* arrived, float* y, int blocks) {
    int n = 256 * blocks;
    double s = 0;
    for (int i = 0; i < n; ++i) s += x[i];
    for (int i = 0; i < n; ++i) y[i] = x[i] - (float)(s / n);
}

//dice: blocks = 1024 | 64 | 3; in x[256 * blocks]; tmp sums[blocks]; tmp arrived[1]: zeros; out y[256 * blocks]
//dice: launch <<<blocks, 256>>>; ref mean_free_cpu
__global__ void mean_free(const float* x, float* sums, int* arrived, float* y, int blocks) {
    __shared__ float s[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    s[threadIdx.x] = x[i];
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        ((volatile float*)sums)[blockIdx.x] = s[0];
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile int*)arrived < blocks) {
        }
        __threadfence();
        float total = 0;
        for (int b = 0; b < blocks; ++b) total += ((volatile float*)sums)[b];
        s[0] = total / (256 * blocks);
    }
    __syncthreads();
    y[i] = x[i] - s[0];
}
