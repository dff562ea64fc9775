// Products of two 32-bit integers need 64 bits. Right: widened before the product. Wrong: widened after it, which shows
// for large values only.

void products_wider_than_int_cpu(const int* a, const int* b, long long* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (long long)a[i] * b[i];
}

//dice: n = 3000; in a[n], b[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref products_wider_than_int_cpu
__global__ void right(const int* a, const int* b, long long* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = b[i] * (long long)a[i];
}

__global__ void wrong(const int* a, const int* b, long long* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)((unsigned)a[i] * (unsigned)b[i]);
}
