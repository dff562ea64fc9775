// expect: cheating | wrong | unsafe | unverified keeps state
// kind: counter left as it is
// check: state
// The last block's counter is not set back: the first launch is right, every later one leaves the total unwritten.

void sum_cpu(const float* x, float* part, float* y, int n) {
    double s = 0;
    for (int i = 0; i < n; ++i) s += x[i];
    y[0] = s;
}

__device__ unsigned int done;

//dice: n = 1M | 1000; in x[n]; tmp part[64]; out y[1]; launch <<<64, 128>>>; ref sum_cpu
__global__ void sum(const float* x, float* part, float* y, int n) {
    __shared__ float s[128];
    float v = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 64; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        if (atomicAdd(&done, 1u) == gridDim.x - 1) {
            float total = 0;
            for (int b = 0; b < gridDim.x; ++b) total += ((volatile float*)part)[b];
            y[0] = total;
        }
    }
}
