void scatter_cpu(const float *values, const int *where, float *out, int n)
{
    for (int i = 0; i < n; i++)
        out[where[i]] = values[i];
}

//dice: n = 32768 | 101 | 2; in values[n], where[n]: perm(n); out out[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void scatter(const float *values, const int *where, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[where[i]] = values[i];
}
