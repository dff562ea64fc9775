void reverse_cpu(const float* in, float* out, int n) {
    for (int i = 0; i < n; i++)
        out[n - 1 - i] = in[i];
}

//dice: n = 65536 | 999 | 1; in in[n]; out out[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void reverse(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[n - 1 - i] = in[i];
}
