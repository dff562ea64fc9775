// expect: unsafe race
// on a GPU: unsafe non_deterministic | unsafe uninitialized | wrong
// kind: in place beside its neighbours
// Each element reads a neighbour that another thread overwrites.

//dice: n = 1M | 1000 | 300; io y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: y + torch.roll(y, -1)
__global__ void smooth(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += y[i + 1 < n ? i + 1 : 0];
}
