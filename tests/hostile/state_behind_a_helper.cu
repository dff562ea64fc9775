// expect: cheating | unverified keeps state | unsafe stateful_result
// timed: the copy pays only when it is launched again
// kind: memo in device memory
// The variable is only touched by a helper that gets its address, so a look at the names of the kernel finds nothing.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

namespace store {
__device__ float cell[2];
__device__ float* at(int k) { return cell + k; }
}  // namespace store

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float* last = store::at(1);
    z[i] = i == 0 && last[0] != 0.0f ? last[0] : x[i] + y[i];
    if (i == 0 && last[0] == 0.0f) last[0] = z[0];
}
