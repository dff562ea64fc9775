// Stretch a table of m intervals (m + 1 samples) to n values; step is a power of two fraction.
void resample_cpu(const float *table, float *out, float step, int m, int n)
{
    for (int i = 0; i < n; i++) {
        float pos = i * step;
        int k = (int)pos;
        if (k > m - 1)
            k = m - 1;
        float f = pos - k < 1.0f ? pos - k : 1.0f;
        out[i] = (1.0f - f) * table[k] + f * table[k + 1];
    }
}

//dice: m = 2000 | 10, n = 7000 | 50; in table[m + 1]; out out[n]; set step = 0.25; launch <<<cdiv(n, 256), 256>>>
__global__ void resample(const float *table, float *out, float step, int m, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float pos = i * step;
        int k = (int)pos;
        if (k > m - 1)
            k = m - 1;
        float f = pos - k < 1.0f ? pos - k : 1.0f;
        out[i] = (1.0f - f) * table[k] + f * table[k + 1];
    }
}
