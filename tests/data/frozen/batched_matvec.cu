void batched_matvec_cpu(const float* A, const float* x, float* y, int batch, int m, int k) {
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < m; i++) {
            float s = 0.0f;
            for (int j = 0; j < k; j++)
                s += A[(b * m + i) * k + j] * x[b * k + j];
            y[b * m + i] = s;
        }
}

//dice: batch = 16 | 3, m = 48 | 7, k = 40 | 5; in A[batch, m, k], x[batch, k]; out y[batch, m]; tol 1e-4
//dice: launch <<<{cdiv(m, 64), batch}, 64>>>
__global__ void batched_matvec(const float* A, const float* x, float* y, int batch, int m, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int b = blockIdx.y;
    if (i < m && b < batch) {
        float s = 0.0f;
        for (int j = 0; j < k; j++)
            s += A[(b * m + i) * k + j] * x[b * k + j];
        y[b * m + i] = s;
    }
}
