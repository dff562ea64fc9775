// A permutation sends every element to a place of its own, so no two threads meet.

void permute_cpu(const float* x, const int* p, float* y, int n) {
    for (int i = 0; i < n; ++i) y[p[i]] = x[i];
}

//dice: n = 1M | 1000 | 33 | 1; in x[n], p[n]: perm(n); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref permute_cpu; exact
__global__ void permute(const float* x, const int* p, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[p[i]] = x[i];
}
