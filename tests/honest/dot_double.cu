// Double precision, summed by shuffles and atomics.

//dice: n = 8M | 20001 | 63; in x[n], y[n]; io out[1]: zeros; launch <<<min(cdiv(n, 256), 32), 256>>>; ref torch: out + torch.dot(x, y)
__global__ void dot(const double* x, const double* y, double* out, int n) {
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i] * y[i];
    for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, sum);
}
