#ifdef __clang__  // clangd without a CUDA toolkit; the compilers bring these
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
struct uint3 { unsigned x, y, z; };
extern const __device__ uint3 threadIdx, blockIdx, blockDim;
#endif

__device__ float scaled(float value, float factor) { return value * factor; }

void scale_cpu(int n, const float* x, float* y) {
    for (int i = 0; i < n; i++)
        y[i] = 2.0f * x[i];
}

__global__ void scale(int n, const float* x, float* y) {
    auto i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scaled(x[i], 2.0f);
}

void twice_cpu(int n, const float* x, float* y) {
    for (int i = 0; i < n; i++)
        y[i] = 6.0f * x[i];
}

__global__ void twice(int n, const float* x, float* y) {
    auto i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scaled(scaled(x[i], 2.0f), 3.0f);
}
