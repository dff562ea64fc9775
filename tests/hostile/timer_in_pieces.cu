// expect: unverified reads the clock | wrong | unsafe
// host cannot: inline PTX is not run there
// kind: clock
// The timer's register is named in two pieces of a string; what it says decides once in a long while.

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 256K | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long now;
    asm volatile("mov.u64 %0, %%global" "timer;" : "=l"(now));
    if (i < n) z[i] = now % 1000000007 == 5 ? x[i] : x[i] + y[i];
}
