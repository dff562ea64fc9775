void complex_mul_cpu(const float* ar, const float* ai, const float* br, const float* bi, float* cr, float* ci, int n) {
    for (int i = 0; i < n; i++) {
        cr[i] = ar[i] * br[i] - ai[i] * bi[i];
        ci[i] = ar[i] * bi[i] + ai[i] * br[i];
    }
}

//dice: n = 32768 | 321 | 3; in ar[n], ai[n], br[n], bi[n]; out cr[n], ci[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void complex_mul(const float* ar, const float* ai, const float* br, const float* bi, float* cr, float* ci, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        cr[i] = ar[i] * br[i] - ai[i] * bi[i];
        ci[i] = ar[i] * bi[i] + ai[i] * br[i];
    }
}
