// Odd-even transposition sort of short rows, a thread to a pair.

//dice: rows = 512 | 3 | 17, width = 64 | 33 | 2; in x[rows, width]; out y[rows, width]; launch <<<rows, 32>>>
//dice: ref torch: x.sort(dim=1).values
__global__ void sort_rows(const float* x, float* y, int rows, int width) {
    __shared__ float v[64];
    for (int i = threadIdx.x; i < width; i += blockDim.x) v[i] = x[blockIdx.x * width + i];
    __syncthreads();
    for (int phase = 0; phase < width; ++phase) {
        int left = 2 * threadIdx.x + (phase & 1);
        if (left + 1 < width) {
            float a = v[left], b = v[left + 1];
            v[left] = fminf(a, b);
            v[left + 1] = fmaxf(a, b);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < width; i += blockDim.x) y[blockIdx.x * width + i] = v[i];
}
