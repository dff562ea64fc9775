// The place of the largest of scores that are products: two scores that agree to a rounding may change places. Right:
// scores by a fused product. Wrong: scores compared in half precision, so that a lesser one often wins.
#include <cuda_fp16.h>

void argmax_near_ties_cpu(const float* x, const float* w, int* y, int n, int d) {
    for (int r = 0; r < n; ++r) {
        int at = 0;
        float top = x[r * d] * w[0] + 1.0f;
        for (int c = 1; c < d; ++c) {
            float score = x[r * d + c] * w[c] + 1.0f;
            if (score > top) {
                top = score;
                at = c;
            }
        }
        y[r] = at;
    }
}

//dice: n = 300 | 7, d = 200 | 33; in x[n, d]: uniform(0.999, 1), w[d]: uniform(0.999, 1); out y[n]
//dice: launch <<<cdiv(n, 32), 32>>>; ref argmax_near_ties_cpu
__global__ void right(const float* x, const float* w, int* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int at = 0;
    float top = -INFINITY;
    for (int c = 0; c < d; ++c) {
        float score = fmaf(x[r * d + c], w[c], 1.0f);
        if (score > top) {
            top = score;
            at = c;
        }
    }
    y[r] = at;
}

__global__ void wrong(const float* x, const float* w, int* y, int n, int d) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int at = 0;
    float top = -INFINITY;
    for (int c = 0; c < d; ++c) {
        float score = __half2float(__float2half(fmaf(x[r * d + c], w[c], 1.0f)));
        if (score > top) {
            top = score;
            at = c;
        }
    }
    y[r] = at;
}
