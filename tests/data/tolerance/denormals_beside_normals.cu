// A denormal beside numbers of ordinary size is a rounding error of them, so here flushing is legal. Right: flushes.
// Wrong: flushes all below 1e-3, which is no longer small beside its neighbours.

void denormals_beside_normals_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] * expf(-x[i] * x[i] * 20.0f);
}

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref denormals_beside_normals_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = x[i] * expf(-x[i] * x[i] * 20.0f);
    y[i] = fabsf(value) < 1.17549435e-38f ? 0.0f : value;
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = x[i] * expf(-x[i] * x[i] * 20.0f);
    y[i] = fabsf(value) < 1e-3f ? 0.0f : value;
}
