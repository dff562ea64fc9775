void gather_rows_cpu(const float* table, const int* index, float* out, int n, int m, int dim) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < dim; j++)
            out[i * dim + j] = table[index[i] * dim + j];
}

//dice: n = 500 | 9, m = 70 | 4, dim = 48 | 5; in table[m, dim], index[n]: int(0, m); out out[n, dim]
//dice: launch <<<{cdiv(dim, 16), cdiv(n, 16)}, {16, 16}>>>
__global__ void gather_rows(const float* table, const int* index, float* out, int n, int m, int dim) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < dim)
        out[i * dim + j] = table[index[i] * dim + j];
}
