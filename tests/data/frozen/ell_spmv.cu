void ell_spmv_cpu(const double *values, const int *columns, const double *x, double *y, int n, int width)
{
    for (int i = 0; i < n; i++) {
        double acc = 0.0;
        for (int s = 0; s < width; s++) {
            int c = columns[s * n + i];
            if (c >= 0)
                acc += values[s * n + i] * x[c];
        }
        y[i] = acc;
    }
}

//dice: n = 2000 | 17, width = 6 | 3; in values[width, n], columns[width, n]: int(-1, n), x[n]; out y[n]
//dice: launch <<<cdiv(n, 256), 256>>>
__global__ void ell_spmv(const double *values, const int *columns, const double *x, double *y, int n, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double acc = 0.0;
        for (int s = 0; s < width; s++) {
            int c = columns[s * n + i];
            if (c >= 0)
                acc += values[s * n + i] * x[c];
        }
        y[i] = acc;
    }
}
