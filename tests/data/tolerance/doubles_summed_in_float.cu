// Doubles in and out. Right: two partial sums in double. Wrong: summed in float, right to seven digits of sixteen.

void doubles_summed_in_float_cpu(const double* x, double* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        double sum = 0.0;
        for (int c = 0; c < d; ++c) sum += x[r * d + c];
        y[r] = sum;
    }
}

//dice: n = 80 | 7, d = 200 | 33; in x[n, d]; out y[n]; launch <<<cdiv(n, 32), 32>>>; ref doubles_summed_in_float_cpu
__global__ void right(const double* x, double* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    double even = 0.0, odd = 0.0;
    for (int c = 0; c < d; c += 2) even += x[r * d + c];
    for (int c = 1; c < d; c += 2) odd += x[r * d + c];
    y[r] = even + odd;
}

__global__ void wrong(const double* x, double* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += (float)x[r * d + c];
    y[r] = sum;
}
