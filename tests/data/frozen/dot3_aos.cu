void dot3_cpu(const float* a, const float* b, float* d, int n) {
    for (int i = 0; i < n; i++)
        d[i] = a[3 * i] * b[3 * i] + a[3 * i + 1] * b[3 * i + 1] + a[3 * i + 2] * b[3 * i + 2];
}

//dice: n = 20000 | 333 | 1; in a[3 * n], b[3 * n]; out d[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void dot3(const float* a, const float* b, float* d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        d[i] = a[3 * i] * b[3 * i] + a[3 * i + 1] * b[3 * i + 1] + a[3 * i + 2] * b[3 * i + 2];
}
