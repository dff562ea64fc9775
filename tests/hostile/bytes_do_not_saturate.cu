// expect: wrong
// kind: unsigned wrap
// Bright pixels turn dark, since a byte wraps where it should stop at 255.

void brighten_cpu(const unsigned char* x, unsigned char* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] + 64 > 255 ? 255 : x[i] + 64;
}

//dice: n = 1M | 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref brighten_cpu
__global__ void brighten(const unsigned char* x, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = static_cast<unsigned char>(x[i] + 64);
}
