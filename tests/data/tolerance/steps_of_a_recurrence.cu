// Each output depends on one input, but through 400 steps, each with a rounding of its own. Nothing shows that before the
// reference is run in single precision too: its own error says how far off an honest kernel is. Right: fused steps.
// Wrong: one step less.

void steps_of_a_recurrence_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) {
        float v = x[i];
        for (int k = 0; k < 400; ++k) v = v * 1.001f + 0.001f * x[i];
        y[i] = v;
    }
}

//dice: n = 2000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref steps_of_a_recurrence_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], add = 0.001f * x[i];
    for (int k = 0; k < 400; ++k) v = fmaf(v, 1.001f, add);
    y[i] = v;
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < 399; ++k) v = v * 1.001f + 0.001f * x[i];
    y[i] = v;
}
