// A fixed-point product is rounded half up. Integers are exact, ties count. Right: half up, by adding half a step.
// Wrong: half to even, as rintf does, which differs at every second tie.

void fixed_point_rounding_cpu(const int* x, int* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = (x[i] + 8) >> 4;
}

//dice: n = 3000; in x[n]: int(0, 4096); out y[n]; launch <<<cdiv(n, 128), 128>>>; ref fixed_point_rounding_cpu
__global__ void right(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)floorf(x[i] / 16.0f + 0.5f);
}

__global__ void wrong(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (int)rintf(x[i] / 16.0f);
}
