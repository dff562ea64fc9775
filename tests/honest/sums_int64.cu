// 64-bit integers, to the last digit.

//dice: n = 8M | 1000; in x[n]: int(-1000000000, 1000000000); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: x * x + x
__global__ void square_plus(const long long* x, long long* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + x[i];
}
