// The reference sums into an int and only then widens, so for large values it overflows, which C leaves undefined. Right:
// summed in 64 bits; nobody can say that it is wrong where the reference says nothing. Wrong: off by one everywhere.
// expect right: unverified the reference reference_overflows_an_int_cpu overflows

void reference_overflows_an_int_cpu(const int* x, long long* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        int sum = 0;
        for (int c = 0; c < d; ++c) sum += x[r * d + c];
        y[r] = sum;
    }
}

//dice: n = 100 | 7, d = 100 | 33; in x[n, d]; out y[n]; launch <<<cdiv(n, 32), 32>>>; ref reference_overflows_an_int_cpu
__global__ void right(const int* x, long long* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    long long sum = 0;
    for (int c = 0; c < d; ++c) sum += x[r * d + c];
    y[r] = sum;
}

__global__ void wrong(const int* x, long long* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    long long sum = 1;
    for (int c = 0; c < d; ++c) sum += x[r * d + c];
    y[r] = sum;
}
