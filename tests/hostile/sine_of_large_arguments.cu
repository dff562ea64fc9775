// expect: wrong
// host cannot: its __sinf is as exact as sinf
// kind: precision dropped
// The fast sine has no range reduction worth the name: right between -pi and pi, noise for ten thousand.

void wave_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = __builtin_sinf(x[i]);
}

//dice: n = 64K | 1000 | 33; in x[n]: uniform(-100000, 100000); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref wave_cpu
__global__ void wave(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __sinf(x[i]);
}
