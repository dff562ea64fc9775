// Three kernels of one name: what is known of one must never be shown for another.
namespace right {
void scale_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = 2.0f * x[i];
}

//dice: n = 4K | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: 2 * x
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
}  // namespace right

namespace wrong {
//dice: n = 4K | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: 2 * x
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3.0f * x[i];
}
}  // namespace wrong

//dice: n = 4K | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: 2 * x
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 2.0f * x[i];
}
