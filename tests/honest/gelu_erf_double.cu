// The exact GELU in double precision, generic over the type.

template <typename T>
__device__ T gelu_of(T x) {
    return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}

//dice: with T = double; n = 256K | 1001 | 1; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: F.gelu(x)
template <typename T>
__global__ void gelu(const T* __restrict__ x, T* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]);
}
