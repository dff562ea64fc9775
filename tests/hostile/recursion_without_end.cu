// expect: unsafe fault | unsafe timeout | unsafe out_of_bounds
// kind: stack runs over
// The end of a recursion is never met for some inputs.

void digits_cpu(const int* x, int* y, int n) {
    for (int i = 0; i < n; ++i) {
        int v = x[i] < 0 ? -x[i] : x[i], k = 0;
        for (; v != 0; v /= 10) ++k;
        y[i] = k;
    }
}

__device__ __noinline__ int digits(int v, int* path) {
    int here[4] = {v, *path, 0, 0};
    if (v == 0) return here[2];
    *path += here[0] & 1;
    return 1 + digits(v > 0 ? v / 10 : v - 10, here + 1) + (here[1] < 0);
}

//dice: n = 1000 | 33; in x[n]: int(-100000, 100000); out y[n]; launch <<<cdiv(n, 64), 64>>>; ref digits_cpu
__global__ void count_digits(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, path = 0;
    if (i < n) y[i] = digits(x[i], &path);
}
