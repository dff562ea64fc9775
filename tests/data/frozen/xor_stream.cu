void xor_stream_cpu(const unsigned int* data, const unsigned int* key, unsigned int* out, int n, int klen) {
    for (int i = 0; i < n; i++)
        out[i] = data[i] ^ key[i % klen];
}

//dice: n = 50000 | 1003, klen = 16 | 5; in data[n]: int(0, 4294967295), key[klen]: int(0, 4294967295); out out[n]
//dice: launch <<<cdiv(n, 256), 256>>>
__global__ void xor_stream(const unsigned int* data, const unsigned int* key, unsigned int* out, int n, int klen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = data[i] ^ key[i % klen];
}
