struct View {
    int n;
    float* data;
    double weight;
};

namespace ours {
__constant__ float coefficients[4];

template <int N>
__global__ void bump(int* x) {
    atomicAdd(&x[blockIdx.x % N], 1);
}
}  // namespace ours

__global__ void scale(int n, float factor, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}

//dice: skip; run "./program struct"
__global__ void apply(View view) {
    int i = threadIdx.x;
    if (i < view.n) view.data[i] = view.data[i] * view.weight + ours::coefficients[i % 4];
}

__global__ void hang(int* x) {
    while (x[0] == 0) {}
}

__global__ void fault(int* x) { x[1 << 30] = 1; }
