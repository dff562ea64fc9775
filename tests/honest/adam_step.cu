// One step of Adam: three buffers are read and written, the gradient only read.
#include <math.h>

void adam_cpu(float* p, float* m, float* v, const float* g, float lr, float beta1, float beta2, float eps, int n) {
    for (int i = 0; i < n; ++i) {
        m[i] = beta1 * m[i] + (1 - beta1) * g[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        p[i] -= lr * m[i] / (sqrtf(v[i]) + eps);
    }
}

//dice: n = 256K | 1003 | 1; io p[n], m[n], v[n]: uniform(0, 1); in g[n]; launch <<<cdiv(n, 256), 256>>>; ref adam_cpu
//dice: set lr = 0.01f, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f
__global__ void adam(float* __restrict__ p, float* __restrict__ m, float* __restrict__ v, const float* __restrict__ g,
                     float lr, float beta1, float beta2, float eps, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float grad = g[i];
    const float mi = fmaf(beta1, m[i], (1.0f - beta1) * grad);
    const float vi = fmaf(beta2, v[i], (1.0f - beta2) * grad * grad);
    m[i] = mi;
    v[i] = vi;
    p[i] -= lr * mi / (sqrtf(vi) + eps);
}
