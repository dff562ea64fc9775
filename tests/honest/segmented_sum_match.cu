// Keys of a warp that are equal add up before one lane does the atomic.

void by_key_cpu(const int* keys, const int* values, int* sums, int n) {
    for (int i = 0; i < n; ++i) sums[keys[i]] += values[i];
}

//dice: n = 64K | 1000 | 31; in keys[n]: int(0, 50), values[n]: int(-1000, 1000); io sums[50]; launch <<<cdiv(n, 128), 128>>>
//dice: ref by_key_cpu
__global__ void by_key(const int* keys, const int* values, int* sums, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned active = __ballot_sync(0xffffffffu, i < n);
    if (i >= n) return;
    const int key = keys[i], v = values[i];
    const unsigned peers = __match_any_sync(active, key);
    const int total = __reduce_add_sync(peers, v);
    if (__ffs(peers) - 1 == (threadIdx.x & 31)) atomicAdd(sums + key, total);
}
