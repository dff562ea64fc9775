#include <cuda_runtime.h>

void matmul_cpu(const float* A, const float* B, float* C, int M, int N, int K) {
    for (int i = 0; i < M; ++i) {
        for (int j = 0; j < N; ++j) {
            float sum = 0.0f;
            for (int k = 0; k < K; ++k) {
                sum += A[i * K + k] * B[k * N + j];
            }
            C[i * N + j] = sum;
        }
    }
}

//dice: M = 256 | 17 | 33, N = 256 | 31 | 5, K = 256 | 9 | 65; in A[M, K], B[K, N]; out C[M, N]
//dice: launch <<<{cdiv(N, 16), cdiv(M, 16)}, {16, 16}>>>; ref matmul_cpu; tol 1e-4; flops 2*M*N*K
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k) {
            acc += A[row * K + k] * B[k * N + col];
        }
        C[row * N + col] = acc;
    }
}
