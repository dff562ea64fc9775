// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: lost update
// Two blocks may both find their value greater, and the smaller one may be written last.

void max_cpu(const int* x, int* best, int n) {
    for (int i = 0; i < n; ++i)
        if (x[i] > best[0]) best[0] = x[i];
}

//dice: n = 1M | 1000; in x[n]; io best[1]: zeros; launch <<<cdiv(n, 256), 256>>>; ref max_cpu
__global__ void maximum(const int* x, int* best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > best[0]) best[0] = x[i];
}
