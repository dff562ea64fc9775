#include <cmath>

void sigmoid_ref(const float *x, float *y, int count)
{
	for (int i = 0; i < count; ++i)
		y[i] = 1.0f / (1.0f + std::exp(-x[i]));
}

//dice: count = 1M | 1025 | 17; in x[count]; out y[count]; launch <<<cdiv(count, 256), 256>>>; ref sigmoid_ref; tol 1e-5
__global__ void sigmoid(const float *x, float *y, int count)
{
	int tid = threadIdx.x + blockIdx.x * blockDim.x;
	if (tid >= count)
		return;
	y[tid] = 1.0f / (1.0f + expf(-x[tid]));
}
