// out = x * scale + bias
//dice: n = 1M | 999 | 64; in x[n]; out out[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: x * scale + bias
__global__ void scale_bias(const float* x, float* out, float scale, float bias, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * scale + bias;
}
