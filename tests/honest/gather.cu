// An index array whose range the directive gives.

//dice: n = 8M | 1000, m = 1M | 77; in table[m], idx[n]: int(0, m); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: table[idx]
__global__ void gather(const float* table, const int* idx, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[idx[i]];
}
