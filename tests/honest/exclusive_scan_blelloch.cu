// Work-efficient exclusive scan of 256 integers per block: up-sweep, clear, down-sweep.

void block_scan_cpu(const int* x, int* y, int* totals, int n) {
    for (int b = 0; b * 256 < n; ++b) {
        int sum = 0;
        for (int i = b * 256; i < n && i < b * 256 + 256; ++i) {
            y[i] = sum;
            sum += x[i];
        }
        totals[b] = sum;
    }
}

//dice: n = 256K | 1000 | 257 | 1; in x[n]; out y[n], totals[cdiv(n, 256)]; launch <<<cdiv(n, 256), 128>>>; ref block_scan_cpu
__global__ void block_scan(const int* x, int* y, int* totals, int n) {
    __shared__ int temp[256];
    const int t = threadIdx.x, base = blockIdx.x * 256;
    temp[2 * t] = base + 2 * t < n ? x[base + 2 * t] : 0;
    temp[2 * t + 1] = base + 2 * t + 1 < n ? x[base + 2 * t + 1] : 0;
    int offset = 1;
    for (int d = 128; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) temp[offset * (2 * t + 2) - 1] += temp[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) {
        totals[blockIdx.x] = temp[255];
        temp[255] = 0;
    }
    for (int d = 1; d < 256; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int ai = offset * (2 * t + 1) - 1, bi = offset * (2 * t + 2) - 1;
            int keep = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += keep;
        }
    }
    __syncthreads();
    if (base + 2 * t < n) y[base + 2 * t] = temp[2 * t];
    if (base + 2 * t + 1 < n) y[base + 2 * t + 1] = temp[2 * t + 1];
}
