// One pass for maximum and sum together, rescaled whenever the maximum grows.

//dice: rows = 1024 | 5 | 1, cols = 1024 | 333 | 1; in logits[rows, cols]; out probs[rows, cols]
//dice: launch <<<rows, 32>>>; ref torch: torch.softmax(logits, dim=-1)
__global__ void online_softmax(const float* logits, float* probs, int rows, int cols) {
    const float* in = logits + (size_t)blockIdx.x * cols;
    float* out = probs + (size_t)blockIdx.x * cols;
    float m = -INFINITY, s = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) {
        float v = in[c];
        float bigger = fmaxf(m, v);
        s = s * expf(m - bigger) + expf(v - bigger);
        m = bigger;
    }
    for (int delta = 16; delta > 0; delta >>= 1) {
        float om = __shfl_xor_sync(0xffffffffu, m, delta);
        float os = __shfl_xor_sync(0xffffffffu, s, delta);
        float bigger = fmaxf(m, om);
        // A lane without elements has the maximum -inf and the sum zero.
        float left = m == -INFINITY ? 0.0f : s * expf(m - bigger);
        float right = om == -INFINITY ? 0.0f : os * expf(om - bigger);
        s = left + right;
        m = bigger;
    }
    for (int c = threadIdx.x; c < cols; c += 32) out[c] = expf(in[c] - m) / s;
}
