void collatz_cpu(const unsigned *start, int *steps, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned long long v = start[i];
        int s = 0;
        while (v > 1 && s < 500) {
            v = (v & 1) ? 3 * v + 1 : v / 2;
            s++;
        }
        steps[i] = s;
    }
}

//dice: n = 3000 | 33; in start[n]: int(1, 10000); out steps[n]; launch <<<cdiv(n, 128), 128>>>
__global__ void collatz(const unsigned *start, int *steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned long long v = start[i];
        int s = 0;
        while (v > 1 && s < 500) {
            v = (v & 1) ? 3 * v + 1 : v / 2;
            s++;
        }
        steps[i] = s;
    }
}
