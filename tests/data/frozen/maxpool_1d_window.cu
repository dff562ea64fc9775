//dice: n_out = 5000 | 33 | 1, window = 4 | 3 | 2; in x[n_out * window]: uniform(-5, 5); out y[n_out]
//dice: launch <<<cdiv(n_out, 256), 256>>>; ref torch: x.reshape(n_out, window).amax(1)
__global__ void max_pool_1d(const float *x, float *y, int n_out, int window)
{
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o < n_out) {
        float best = x[o * window];
        for (int k = 1; k < window; ++k)
            best = max(best, x[o * window + k]);
        y[o] = best;
    }
}
