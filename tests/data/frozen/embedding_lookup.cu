//dice: tokens = 300 | 7, vocab = 200 | 11, width = 64 | 5; in ids[tokens]: int(0, vocab), weight[vocab, width]
//dice: out out[tokens, width]; launch <<<tokens, 64>>>; ref torch: weight[ids]
__global__ void embedding(const int* ids, const float* weight, float* out, int tokens, int vocab, int width) {
    int t = blockIdx.x;
    for (int j = threadIdx.x; j < width; j += blockDim.x)
        out[t * width + j] = weight[ids[t] * width + j];
}
