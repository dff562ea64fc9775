"""A PyCUDA program."""
import numpy as np
from pycuda.compiler import SourceModule

mod = SourceModule("""
//dice: n = 1M | 1003; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: a * x + y
__global__ void saxpy(float a, const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
""")

other = r'''
__global__ void saxpy(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2.0f; }
'''

n = np.int32(1 << 20)
