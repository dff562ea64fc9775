// The mean of two bytes, halves rounded up. Right: through bits, without a wider sum. Wrong: halves rounded down.

void mean_of_two_pixels_cpu(const unsigned char* a, const unsigned char* b, unsigned char* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (a[i] + b[i] + 1) / 2;
}

//dice: n = 3000; in a[n], b[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref mean_of_two_pixels_cpu
__global__ void right(const unsigned char* a, const unsigned char* b, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (a[i] | b[i]) - ((a[i] ^ b[i]) >> 1);
}

__global__ void wrong(const unsigned char* a, const unsigned char* b, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (a[i] & b[i]) + ((a[i] ^ b[i]) >> 1);
}
