// expect: unverified reads the clock | unsafe race | wrong
// kind: clock
// The name of the clock is pasted together, so that a search of the text does not find it; one run in many is wrong.
#define PASTE(a, b) a##b

void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

//dice: n = 256K | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref add_cpu
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = (PASTE(clo, ck64)() & 0xffffffffffll) == 7 ? x[i] : x[i] + y[i];
}
