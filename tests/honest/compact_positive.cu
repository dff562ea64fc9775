// Stream compaction of each block's elements by ballots; unused places are filled with -1.

void compact_cpu(const int* x, int* kept, int* counts, int n) {
    for (int b = 0; b * 64 < n; ++b) {
        int at = 0;
        for (int i = b * 64; i < n && i < b * 64 + 64; ++i)
            if (x[i] > 0) kept[b * 64 + at++] = x[i];
        counts[b] = at;
        for (; at < 64 && b * 64 + at < n; ++at) kept[b * 64 + at] = -1;
    }
}

//dice: n = 128K | 1001 | 65 | 1; in x[n]; out kept[n], counts[cdiv(n, 64)]; launch <<<cdiv(n, 64), 64>>>; ref compact_cpu
__global__ void compact(const int* x, int* kept, int* counts, int n) {
    __shared__ int first_warp;
    const int i = blockIdx.x * 64 + threadIdx.x;
    const int lane = threadIdx.x & 31;
    const int v = i < n ? x[i] : 0;
    const unsigned votes = __ballot_sync(0xffffffffu, v > 0);
    if (threadIdx.x == 0) first_warp = __popc(votes);
    __syncthreads();
    const int base = threadIdx.x < 32 ? 0 : first_warp;
    const int total = __syncthreads_count(v > 0);
    int at = base + __popc(votes & ((1u << lane) - 1));
    if (v > 0) kept[blockIdx.x * 64 + at] = v;
    if (i < n && (int)threadIdx.x >= total) kept[i] = -1;
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}
