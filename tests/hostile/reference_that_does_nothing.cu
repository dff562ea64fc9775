// expect: unverified | unsafe unwritten_output | unsafe never_launched
// kind: spec without a real reference
// The function to compare with writes nothing either, so that both agree.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = n; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 64K | 1000 | 33; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 1e30f) z[i] = x[i] + y[i];
}
