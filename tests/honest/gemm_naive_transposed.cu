// C = alpha * A * B^T + beta * C, one thread per element.

void gemm_nt_cpu(const float* A, const float* B, float* C, float alpha, float beta, int M, int N, int K) {
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float dot = 0;
            for (int k = 0; k < K; k++) dot += A[m * K + k] * B[n * K + k];
            C[m * N + n] = alpha * dot + beta * C[m * N + n];
        }
}

//dice: M = 256 | 37 | 1, N = 256 | 41 | 5, K = 256 | 29 | 130; in A[M * K], B[N * K]; io C[M * N]
//dice: launch <<<dim3(cdiv(N, 16), cdiv(M, 8)), dim3(16, 8)>>>; ref gemm_nt_cpu
__global__ void gemm_nt(const float* A, const float* B, float* C, float alpha, float beta, int M, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    int m = blockIdx.y * blockDim.y + threadIdx.y;
    if (m >= M || n >= N) return;
    float dot = 0.0f;
    for (int k = 0; k < K; k++) dot = fmaf(A[m * K + k], B[n * K + k], dot);
    C[m * N + n] = alpha * dot + beta * C[m * N + n];
}
