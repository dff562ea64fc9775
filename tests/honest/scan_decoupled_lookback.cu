// A scan of the whole array in one launch: blocks take a ticket, publish their total, and look back at those before.

void scan_cpu(const unsigned int* x, unsigned int* y, unsigned int* ticket, unsigned long long* state, int n) {
    unsigned int s = 0;
    for (int i = 0; i < n; ++i) y[i] = s += x[i];
}

//dice: n = 128K | 1000 | 129 | 1; in x[n]; out y[n]; tmp ticket[1]: zeros, state[cdiv(n, 128)]: zeros
//dice: launch <<<cdiv(n, 128), 128>>>; ref scan_cpu
__global__ void scan(const unsigned int* x, unsigned int* y, unsigned int* ticket, unsigned long long* state, int n) {
    __shared__ unsigned int warp_total[4];
    __shared__ unsigned int tile, before;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
    __syncthreads();
    const int i = tile * 128 + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned int v = i < n ? x[i] : 0;
    for (int d = 1; d < 32; d *= 2) {
        unsigned int left = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += left;
    }
    if (lane == 31) warp_total[warp] = v;
    __syncthreads();
    for (int k = 0; k < warp; ++k) v += warp_total[k];
    if (threadIdx.x == 127) {
        // The upper half says what the lower half holds: 1 this tile's own total, 2 the total up to its end.
        atomicExch(&state[tile], (tile == 0 ? 2ull : 1ull) << 32 | v);
        unsigned int sum = 0;
        for (int t = (int)tile - 1; t >= 0;) {
            unsigned long long s = atomicAdd(&state[t], 0ull);
            if (s >> 32 == 0) continue;
            sum += (unsigned int)s;
            if (s >> 32 == 2) break;
            --t;
        }
        before = sum;
        atomicExch(&state[tile], 2ull << 32 | (v + sum));
    }
    __syncthreads();
    if (i < n) y[i] = v + before;
}
