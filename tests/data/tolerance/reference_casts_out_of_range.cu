// A float outside of the range of an integer type cannot be cast to it: C leaves the result undefined, and a GPU gives
// another one than this machine. Right: clamped first. Wrong: off by one within the range.
// expect right: unverified the reference reference_casts_out_of_range_cpu

void reference_casts_out_of_range_cpu(const float* x, unsigned char* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (unsigned char)(x[i] * 100.0f);
}

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref reference_casts_out_of_range_cpu
__global__ void right(const float* x, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)fminf(fmaxf(x[i] * 100.0f, 0.0f), 255.0f);
}

// expect wrong: unverified the reference reference_casts_out_of_range_cpu
__global__ void wrong(const float* x, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)fminf(fmaxf(x[i] * 100.0f + 1.0f, 0.0f), 255.0f);
}
