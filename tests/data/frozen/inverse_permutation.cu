void invert_permutation_cpu(const int* perm, int* inverse, int n) {
    for (int i = 0; i < n; i++)
        inverse[perm[i]] = i;
}

//dice: n = 16384 | 77; in perm[n]: perm(n); out inverse[n]; launch <<<cdiv(n, 128), 128>>>; exact
__global__ void invert_permutation(const int* perm, int* inverse, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        inverse[perm[i]] = i;
}
