void gcd_pairs_cpu(const int* a, const int* b, int* g, int n) {
    for (int i = 0; i < n; i++) {
        int x = a[i], y = b[i];
        while (y != 0) {
            int t = x % y;
            x = y;
            y = t;
        }
        g[i] = x;
    }
}

//dice: n = 12000 | 100 | 1; in a[n]: int(1, 100000), b[n]: int(1, 100000); out g[n]; launch <<<cdiv(n, 256), 256>>>; exact
__global__ void gcd_pairs(const int* a, const int* b, int* g, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int x = a[i], y = b[i];
        while (y != 0) {
            int t = x % y;
            x = y;
            y = t;
        }
        g[i] = x;
    }
}
