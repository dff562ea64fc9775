// expect: wrong
// kind: wrong rounding
// check: distributions
// Halves go up where the reference goes to the even neighbour; random floats hardly ever are halves.
#include <math.h>

void round_cpu(const float* x, float* q, int n) {
    for (int i = 0; i < n; ++i) q[i] = rintf(0.5f * x[i]);
}

//dice: n = 1M | 1000 | 33; in x[n]; out q[n]; launch <<<cdiv(n, 256), 256>>>; ref round_cpu
__global__ void round_half(const float* x, float* q, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) q[i] = floorf(0.5f * x[i] + 0.5f);
}
