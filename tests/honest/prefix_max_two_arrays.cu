// Two arrays share the dynamic shared memory: running maxima of each row, and how often it changed.

void running_max_cpu(const float* x, float* y, int* changes, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        float m = x[r * cols];
        int k = 0;
        for (int c = 0; c < cols; ++c) {
            if (x[r * cols + c] > m) m = x[r * cols + c], ++k;
            y[r * cols + c] = m;
        }
        changes[r] = k;
    }
}

//dice: rows = 256 | 7 | 1, cols = 128 | 100 | 33; in x[rows, cols]; out y[rows, cols], changes[rows]
//dice: launch <<<rows, cols, cols * (sizeof(float) + sizeof(int))>>>; ref running_max_cpu
__global__ void running_max(const float* x, float* y, int* changes, int rows, int cols) {
    extern __shared__ unsigned char raw[];
    float* m = reinterpret_cast<float*>(raw);
    int* up = reinterpret_cast<int*>(raw + cols * sizeof(float));
    const int c = threadIdx.x;
    m[c] = x[blockIdx.x * cols + c];
    __syncthreads();
    for (int d = 1; d < cols; d <<= 1) {
        float left = c >= d ? m[c - d] : -INFINITY;
        __syncthreads();
        m[c] = fmaxf(m[c], left);
        __syncthreads();
    }
    y[blockIdx.x * cols + c] = m[c];
    up[c] = c > 0 && m[c] > m[c - 1];
    __syncthreads();
    if (c == 0) {
        int k = 0;
        for (int i = 0; i < cols; ++i) k += up[i];
        changes[blockIdx.x] = k;
    }
}
