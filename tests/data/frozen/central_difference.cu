// one-sided at both ends
void central_diff_cpu(const double* y, double* dy, double dx, int n) {
    for (int i = 0; i < n; i++) {
        if (i == 0)
            dy[i] = (y[1] - y[0]) / dx;
        else if (i == n - 1)
            dy[i] = (y[n - 1] - y[n - 2]) / dx;
        else
            dy[i] = (y[i + 1] - y[i - 1]) / (2.0 * dx);
    }
}

//dice: n = 20000 | 129 | 2; in y[n]; out dy[n]; set dx = 0.125; launch <<<cdiv(n, 128), 128>>>
__global__ void central_diff(const double* y, double* dy, double dx, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (i == 0)
        dy[i] = (y[1] - y[0]) / dx;
    else if (i == n - 1)
        dy[i] = (y[n - 1] - y[n - 2]) / dx;
    else
        dy[i] = (y[i + 1] - y[i - 1]) / (2.0 * dx);
}
