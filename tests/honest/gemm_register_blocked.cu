// Each thread computes a 4 x 4 patch in registers; the tiles of A are kept transposed.
#define BM 32
#define BN 32
#define BK 8
#define TM 4
#define TN 4

void sgemm_cpu(const float* A, const float* B, float* C, int M, int N, int K) {
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            float acc = 0.0f;
            for (int k = 0; k < K; ++k) acc += A[i * K + k] * B[k * N + j];
            C[i * N + j] = acc;
        }
}

//dice: M = 512 | 65 | 40, N = 512 | 31 | 48, K = 512 | 19 | 24; in A[M, K], B[K, N]; out C[M, N]
//dice: launch <<<{cdiv(N, BN), cdiv(M, BM)}, 64>>>; ref sgemm_cpu; flops 2 * M * N * K
__global__ __launch_bounds__(64) void sgemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                                            int M, int N, int K) {
    __shared__ float As[BK][BM];
    __shared__ float Bs[BK][BN];
    const int tid = threadIdx.x;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int ty = tid / (BN / TN), tx = tid % (BN / TN);
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = tid; i < BM * BK; i += 64) {
            int m = i / BK, k = i % BK;
            As[k][m] = (m0 + m < M && k0 + k < K) ? A[(m0 + m) * K + k0 + k] : 0.0f;
        }
        for (int i = tid; i < BK * BN; i += 64) {
            int k = i / BN, n = i % BN;
            Bs[k][n] = (k0 + k < K && n0 + n < N) ? B[(k0 + k) * N + n0 + n] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; ++i) a[i] = As[k][ty * TM + i];
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx * TN + j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i) {
        int m = m0 + ty * TM + i;
        for (int j = 0; j < TN; ++j) {
            int n = n0 + tx * TN + j;
            if (m < M && n < N) C[m * N + n] = acc[i][j];
        }
    }
}
