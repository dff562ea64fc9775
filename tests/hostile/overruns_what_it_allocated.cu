// expect: unsafe out_of_bounds
// GPU cannot: a kernel's own heap has no guards, and the element behind belongs to nobody
// kind: overrun of a kernel's own memory
// A thread sorts a handful of numbers in memory of its own, which is one element too short.

void median_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) {
        float a = x[3 * i], b = x[3 * i + 1], c = x[3 * i + 2];
        float low = a < b ? a : b, high = a < b ? b : a;
        y[i] = c < low ? low : c > high ? high : c;
    }
}

//dice: n = 4096 | 100; in x[3 * n]; out y[n]; launch <<<cdiv(n, 64), 64>>>; ref median_cpu
__global__ void median(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float* v = new float[2];
    if (v == nullptr) return;
    for (int k = 0; k < 3; ++k) v[k] = x[3 * i + k];
    for (int k = 0; k < 2; ++k)
        for (int j = 0; j < 2 - k; ++j)
            if (v[j] > v[j + 1]) {
                float keep = v[j];
                v[j] = v[j + 1];
                v[j + 1] = keep;
            }
    y[i] = v[1];
    delete[] v;
}
