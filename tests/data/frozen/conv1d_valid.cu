void conv1d_cpu(const float* signal, const float* taps, float* out, int n, int k) {
    for (int i = 0; i <= n - k; i++) {
        float s = 0.0f;
        for (int j = 0; j < k; j++)
            s += signal[i + j] * taps[j];
        out[i] = s;
    }
}

//dice: n = 10000 | 100 | 9, k = 7 | 5 | 9; in signal[n], taps[k]; out out[n - k + 1]; tol 1e-4
//dice: launch <<<cdiv(n - k + 1, 256), 256>>>
__global__ void conv1d(const float* signal, const float* taps, float* out, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n - k) {
        float s = 0.0f;
        for (int j = 0; j < k; j++)
            s += signal[i + j] * taps[j];
        out[i] = s;
    }
}
