// One block of 32 threads to a row and inputs of up to ten thousand: right, though no fixed tolerance of 1e-7 takes it.
#define BLOCK_SIZE 32

void gemv_cpu(const float* A, const float* x, float* y, int m, int n) {
    for (int r = 0; r < m; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < n; ++c) sum += A[r * n + c] * x[c];
        y[r] = sum;
    }
}

//dice: m = 4096 | 60 | 7, n = 4096 | 1000 | 8191
//dice: in A[m, n]: uniform(-10000, 10000), x[n]: uniform(-10000, 10000); out y[m]; launch <<<m, BLOCK_SIZE>>>; ref gemv_cpu
__global__ void gemv(const float* A, const float* x, float* y, int m, int n) {
    __shared__ float acc[BLOCK_SIZE];
    int tid = threadIdx.x;
    acc[tid] = 0.0f;
    for (int c = tid; c < n; c += BLOCK_SIZE) acc[tid] += A[blockIdx.x * n + c] * x[c];
    __syncthreads();
    for (int i = BLOCK_SIZE / 2; i > 0; i /= 2) {
        if (tid < i) acc[tid] += acc[tid + i];
        __syncthreads();
    }
    if (tid == 0) y[blockIdx.x] = acc[0];
}
