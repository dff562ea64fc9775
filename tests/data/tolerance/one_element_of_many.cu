// One element of a hundred thousand is off by a thousandth: no mean shows it, so each element counts. Right: none is, by
// intrinsics that are two ulps off. Wrong: the one.

void one_element_of_many_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 1.0f / (1.0f + expf(-x[i]));
}

//dice: n = 100000 | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref one_element_of_many_cpu
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __fdividef(1.0f, 1.0f + __expf(-x[i]));
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.0f / (1.0f + expf(-x[i])) * (i == 77777 ? 1.001f : 1.0f);
}
