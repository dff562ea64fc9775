// expect: wrong
// kind: edge of an index range
// check: index_ranges
// The last row of the table is never read, and a random index into a long table hardly ever is the last.

void gather_cpu(const float* table, const int* idx, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = table[idx[i]];
}

//dice: n = 33 | 7; in table[10000], idx[n]: int(0, 10000); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref gather_cpu
__global__ void gather(const float* table, const int* idx, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[min(idx[i], 9998)];
}
