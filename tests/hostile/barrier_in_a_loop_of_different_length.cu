// expect: unsafe divergent_barrier | unsafe deadlock
// on a GPU: wrong | unsafe | verified
// kind: divergent barrier
// Threads with less to do pass fewer barriers than the others.

void row_sums_cpu(const float* x, float* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        float s = 0;
        for (int c = 0; c < d; ++c) s += x[r * d + c];
        y[r] = s;
    }
}

//dice: n = 512 | 3, d = 1000 | 65; in x[n, d]; out y[n]; launch <<<n, 64>>>; ref row_sums_cpu
__global__ void row_sums(const float* x, float* y, int n, int d) {
    __shared__ float s[64];
    s[threadIdx.x] = 0;
    for (int c = threadIdx.x; c < d; c += 64) {
        s[threadIdx.x] += x[blockIdx.x * d + c];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        float total = 0;
        for (int k = 0; k < 64; ++k) total += s[k];
        y[blockIdx.x] = total;
    }
}
