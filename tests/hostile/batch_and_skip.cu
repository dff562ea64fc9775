// expect: cheating | unverified keeps state | unsafe
// timed: three of four launches do nothing when they are timed
// kind: one launch works for several
// Every fourth launch computes the sums of the last four, whose addresses it has kept, and the three between do nothing.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

__device__ const float* kept_x[4];
__device__ const float* kept_y[4];
__device__ float* kept_z[4];
__device__ unsigned int calls;

//dice: n = 4096 | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<1, 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    __shared__ unsigned int call;
    if (threadIdx.x == 0) {
        call = calls++;
        kept_x[call % 4] = x, kept_y[call % 4] = y, kept_z[call % 4] = z;
    }
    __syncthreads();
    unsigned int first = call < 64 ? call % 4 : 0, last = call < 64 || call % 4 == 3 ? call % 4 + 1 : 0;
    for (unsigned int k = first; k < last; ++k)
        for (int i = threadIdx.x; i < n; i += 256) kept_z[k][i] = kept_x[k][i] + kept_y[k][i];
}
