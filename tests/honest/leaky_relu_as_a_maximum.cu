// Right for every slope that makes it a leaky ReLU.

void leaky_relu_cpu(const float* x, float* y, float slope, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

//dice: n = 16M | 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref leaky_relu_cpu
__global__ void leaky_relu(const float* x, float* y, float slope, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], slope * x[i]);
}
