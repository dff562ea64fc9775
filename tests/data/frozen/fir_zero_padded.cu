// Centred filter of 2 * R + 1 taps; samples outside of the signal count as zero.
void fir_cpu(const float *x, const float *h, float *y, int len, int R)
{
    for (int t = 0; t < len; t++) {
        float acc = 0.f;
        for (int r = -R; r <= R; r++) {
            int s = t + r;
            if (s >= 0 && s < len)
                acc += x[s] * h[r + R];
        }
        y[t] = acc;
    }
}

//dice: len = 8000 | 33 | 2, R = 4 | 3 | 1; in x[len], h[2 * R + 1]; out y[len]; launch <<<cdiv(len, 128), 128>>>; tol 1e-4
__global__ void fir(const float *x, const float *h, float *y, int len, int R)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < len) {
        float acc = 0.f;
        for (int r = -R; r <= R; r++) {
            int s = t + r;
            if (s >= 0 && s < len)
                acc += x[s] * h[r + R];
        }
        y[t] = acc;
    }
}
