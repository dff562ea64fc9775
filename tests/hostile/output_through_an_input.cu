// expect: unsafe mutated_input | unsafe unwritten_output
// kind: wrong pointer
// The sums go to an input; whoever looks there for the output by mistake finds them.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 1M | 1000 | 257; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) const_cast<float*>(y)[i] = x[i] + y[i];
}
