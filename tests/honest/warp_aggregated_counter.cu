// Even numbers are counted with one atomic per warp; the leader adds for all whose vote was yes.

void count_cpu(const int* x, unsigned int* even, int n) {
    for (int i = 0; i < n; ++i) even[0] += x[i] % 2 == 0;
}

//dice: n = 256K | 1000 | 31; in x[n]; io even[1]: zeros; launch <<<cdiv(n, 256), 256>>>; ref count_cpu
__global__ void count_even(const int* x, unsigned int* even, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int yes = __ballot_sync(0xffffffffu, i < n && x[i] % 2 == 0);
    if ((threadIdx.x & 31) == __ffs(yes) - 1) atomicAdd(even, __popc(yes));
}
