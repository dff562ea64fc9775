//dice: with T = 16; M = 2048 | 50, N = 2048 | 40, K = 2048 | 33; in A[M * K], B[K * N]; out C[M * N]
//dice: launch <<<{cdiv(N, T), cdiv(M, T)}, {T, T}>>>; ref torch: A @ B; flops 2*M*N*K; peak f32
template <int T>
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[T][T], b[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        a[threadIdx.y][threadIdx.x] = row < M && k0 + threadIdx.x < K ? A[row * K + k0 + threadIdx.x] : 0.0f;
        b[threadIdx.y][threadIdx.x] = col < N && k0 + threadIdx.y < K ? B[(k0 + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
