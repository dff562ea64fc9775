// Loss of each row and the gradient of its logits; labels are class numbers.
#include <math.h>

void cross_entropy_cpu(const float* logits, const int* labels, float* loss, float* grad, int n, int classes) {
    for (int i = 0; i < n; ++i) {
        const float* row = logits + i * classes;
        float top = row[0], sum = 0;
        for (int c = 1; c < classes; ++c) top = fmaxf(top, row[c]);
        for (int c = 0; c < classes; ++c) sum += expf(row[c] - top);
        loss[i] = logf(sum) + top - row[labels[i]];
        for (int c = 0; c < classes; ++c) grad[i * classes + c] = expf(row[c] - top) / sum - (c == labels[i] ? 1.0f : 0.0f);
    }
}

//dice: n = 1024 | 9 | 1, classes = 100 | 10 | 33; in logits[n, classes], labels[n]: int(0, classes)
//dice: out loss[n], grad[n, classes]; launch <<<n, 32>>>; ref cross_entropy_cpu
__global__ void cross_entropy(const float* logits, const int* labels, float* loss, float* grad, int n, int classes) {
    const int i = blockIdx.x, lane = threadIdx.x;
    const float* row = logits + i * classes;
    const int label = labels[i];
    float top = -INFINITY;
    for (int c = lane; c < classes; c += 32) top = fmaxf(top, row[c]);
    for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, o));
    float sum = 0.f;
    for (int c = lane; c < classes; c += 32) sum += expf(row[c] - top);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    const float inv = 1.f / sum;
    for (int c = lane; c < classes; c += 32) grad[i * classes + c] = expf(row[c] - top) * inv - (c == label);
    if (lane == 0) loss[i] = logf(sum) - (row[label] - top);
}
