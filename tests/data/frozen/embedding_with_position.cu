void embed_cpu(const int *tok, const float *wte, const float *wpe, float *out, int T, int V, int C)
{
    for (int t = 0; t < T; t++)
        for (int c = 0; c < C; c++)
            out[t * C + c] = wte[tok[t] * C + c] + wpe[t * C + c];
}

//dice: T = 100 | 9, V = 50 | 4, C = 72 | 3; in tok[T]: int(0, V), wte[V, C], wpe[T, C]; out out[T, C]
//dice: launch <<<cdiv(T * C, 256), 256>>>
__global__ void embed(const int *tok, const float *wte, const float *wpe, float *out, int T, int V, int C)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < T * C) {
        int t = i / C;
        int c = i % C;
        out[i] = wte[tok[t] * C + c] + wpe[t * C + c];
    }
}
