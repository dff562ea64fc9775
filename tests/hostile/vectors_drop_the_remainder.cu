// expect: unsafe unwritten_output
// kind: tail left out
// Four elements a thread, and those that do not fill a vector are left.

//dice: n = 1M | 1000 | 1001; in x[n]; out y[n]; launch <<<cdiv(cdiv(n, 4), 256), 256>>>; ref torch: torch.relu(x)
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        for (int j = 0; j < 4; ++j) y[4 * i + j] = fmaxf(x[4 * i + j], 0.0f);
    }
}
