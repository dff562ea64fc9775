// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: lost update
// Two threads that count the same value lose one: right when threads run one after another.

//dice: n = 1M | 3000 | 255; in x[n]; io bins[256]: zeros; launch <<<cdiv(n, 256), 256>>>
//dice: ref torch: bins + torch.bincount(x, minlength=256)
__global__ void histogram(const unsigned char* x, unsigned int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) bins[x[i]] += 1u;
}
