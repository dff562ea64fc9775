// expect: unsafe precision_dropped | wrong
// kind: precision dropped
// The result goes through a float: half of its digits are gone, which is less than a tolerance of 1e-7 sees.

void daxpy_cpu(const double* x, const double* y, double* z, double a, int n) {
    for (int i = 0; i < n; ++i) z[i] = a * x[i] + y[i];
}

//dice: n = 1M | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref daxpy_cpu
__global__ void daxpy(const double* x, const double* y, double* z, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = static_cast<float>(a * x[i] + y[i]);
}
