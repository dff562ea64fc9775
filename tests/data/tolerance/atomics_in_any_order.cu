// Atomic additions come in any order, so the last bits differ from run to run. Right: one addition per warp. Wrong: the
// lanes of the last warp that lie past the end still vote, with the last element.

void atomics_in_any_order_cpu(const float* x, float* y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i];
    y[0] += sum;
}

//dice: n = 5000; in x[n]; io y[1]: zeros; launch <<<cdiv(n, 128), 128>>>; ref atomics_in_any_order_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? x[i] : 0.0f;
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if ((threadIdx.x & 31) == 0) atomicAdd(y, sum);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = x[min(i, n - 1)];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if ((threadIdx.x & 31) == 0) atomicAdd(y, sum);
}
