// expect: not timed
// host cannot: times need a GPU
// timed: the figure is refused, not the sums
// kind: spec claims more than there is
// One addition an element is declared as a million operations: more than every unit of the card together could do.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 256K | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu; flops 1000000 * n; peak f32
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
