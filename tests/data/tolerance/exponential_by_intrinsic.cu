// Right: __expf, two ulps and a sixth of an ulp more for each unit of the argument. Wrong: an exponential that has been
// through half precision, off by 2e-4.
#include <cuda_fp16.h>

//dice: n = 3000; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref torch: torch.exp(-x * x)
__global__ void right(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __expf(-x[i] * x[i]);
}

__global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __half2float(hexp(__float2half(-x[i] * x[i])));
}
