// expect: unsafe race
// GPU cannot: the counter's atomic takes longer than the write that should come before it
// kind: missing fence
// The last block adds up what the others wrote, but nothing makes their writes arrive before the counter does.

void sum_cpu(const float* x, float* part, unsigned int* ticket, float* y, int n) {
    double s = 0;
    for (int i = 0; i < n; ++i) s += x[i];
    y[0] = s;
}

//dice: n = 64K | 1000; in x[n]; tmp part[32]; tmp ticket[1]: zeros; out y[1]; launch <<<32, 128>>>; ref sum_cpu
__global__ void sum(const float* x, float* part, unsigned int* ticket, float* y, int n) {
    __shared__ float s[128];
    float own = 0.0f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) own += x[i];
    s[threadIdx.x] = own;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    part[blockIdx.x] = s[0];
    if (atomicAdd(ticket, 1) < gridDim.x - 1) return;
    float total = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) total += ((volatile float*)part)[b];
    y[0] = total;
}
