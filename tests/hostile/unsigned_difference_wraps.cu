// expect: wrong
// kind: unsigned wrap
// A smaller number less a greater one is no negative number when both are unsigned.

void ramp_cpu(const unsigned int* a, const unsigned int* b, unsigned int* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = a[i] > b[i] ? a[i] - b[i] : 0;
}

//dice: n = 1M | 1000 | 33; in a[n]: int(0, 1000), b[n]: int(0, 1000); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref ramp_cpu
__global__ void ramp(const unsigned int* a, const unsigned int* b, unsigned int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = max(a[i] - b[i], 0u);
}
