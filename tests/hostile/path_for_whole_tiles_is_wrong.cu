// expect: unsafe unwritten_output
// kind: keyed by the size
// Sizes that are a multiple of 1024, the benchmark's among them, take a path of their own, which stops half way.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 16M; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 1024), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (n % 1024 == 0) {
        if (i < n / 2) {
            float4 a = *reinterpret_cast<const float4*>(x + i), b = *reinterpret_cast<const float4*>(y + i);
            *reinterpret_cast<float4*>(z + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        }
    } else {
        for (int k = i; k < min(n, i + 4); ++k) z[k] = x[k] + y[k];
    }
}
