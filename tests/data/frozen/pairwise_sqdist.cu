void pairwise_sqdist_cpu(const float* a, const float* b, float* d, int n, int m, int dim) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            float s = 0.0f;
            for (int k = 0; k < dim; k++) {
                float t = a[i * dim + k] - b[j * dim + k];
                s += t * t;
            }
            d[i * m + j] = s;
        }
}

//dice: n = 64 | 17, m = 80 | 5, dim = 24 | 3; in a[n, dim], b[m, dim]; out d[n, m]; tol 1e-4
//dice: launch <<<{cdiv(m, 16), cdiv(n, 16)}, {16, 16}>>>
__global__ void pairwise_sqdist(const float* a, const float* b, float* d, int n, int m, int dim) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < m) {
        float s = 0.0f;
        for (int k = 0; k < dim; k++) {
            float t = a[i * dim + k] - b[j * dim + k];
            s += t * t;
        }
        d[i * m + j] = s;
    }
}
