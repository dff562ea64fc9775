// One template for several reductions: the operator is a type with its neutral element, the warps meet by shuffles.

template <typename T>
struct Sum {
    static __device__ T neutral() { return T(0); }
    __device__ T operator()(T a, T b) const { return a + b; }
};

template <typename T, int N, template <typename> class Op>
__device__ T block_reduce(T v) {
    __shared__ T partial[N / 32];
    Op<T> op;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, lanes));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    T all = Op<T>::neutral();
    for (int w = 0; w < N / 32; ++w) all = op(all, partial[w]);
    return all;
}

//dice: with N = 128; rows = 512 | 5, cols = 777 | 128 | 1; in x[rows, cols]; out y[rows]; launch <<<rows, N>>>
//dice: ref torch: (x * x).sum(1)
template <int N>
__global__ void squares(const double* x, double* y, int rows, int cols) {
    double s = 0.0;
    for (int c = threadIdx.x; c < cols; c += N) {
        double v = x[static_cast<size_t>(blockIdx.x) * cols + c];
        s = fma(v, v, s);
    }
    s = block_reduce<double, N, Sum>(s);
    if (threadIdx.x == 0) y[blockIdx.x] = s;
}
