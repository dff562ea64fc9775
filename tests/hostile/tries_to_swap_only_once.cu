// expect: wrong | unsafe non_deterministic
// host cannot: nothing comes between a read and a swap there
// kind: lost update
// The compare-and-swap of a float sum is not repeated when another thread was quicker.

void sum_cpu(const float* x, float* total, int n) {
    for (int i = 0; i < n; ++i) total[0] += x[i];
}

//dice: n = 64K | 1000; in x[n]; io total[1]: zeros; launch <<<cdiv(n, 256), 256>>>; ref sum_cpu
__global__ void sum(const float* x, float* total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int seen = *(volatile int*)total;
    atomicCAS((int*)total, seen, __float_as_int(__int_as_float(seen) + x[i]));
}
