#include <math.h>

// Labels are +1 or -1 in spirit, any float is accepted.
void hinge_loss_cpu(const float* pred, const float* label, float* loss, int n) {
    for (int i = 0; i < n; i++)
        loss[i] = fmaxf(0.0f, 1.0f - label[i] * pred[i]);
}

//dice: n = 50000 | 333 | 5; in pred[n], label[n]; out loss[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void hinge_loss(const float* pred, const float* label, float* loss, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    loss[i] = fmaxf(0.0f, 1.0f - label[i] * pred[i]);
}
