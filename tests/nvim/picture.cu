// Every save compiles each kernel and compares it with its reference.
void saxpy_cpu(int n, float a, const float* x, float* y) {
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}

__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

//dice: n = 64K | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void copy(int n, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

void relu_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
