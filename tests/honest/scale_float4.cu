// Vector loads and stores; sizes are whole vectors.

//dice: n = 16M | 4000 | 1024; in x[n / 4]; out y[n / 4]; launch <<<cdiv(n / 4, 256), 256>>>; set a = 3.0f; ref torch: a * x
__global__ void scale(const float4* x, float4* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    float4 v = x[i];
    y[i] = make_float4(a * v.x, a * v.y, a * v.z, a * v.w);
}
