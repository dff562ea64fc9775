#include <cuda_fp16.h>

__global__ void late(const float* x, float* y, int n) {
  __shared__ float first;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) first = x[0];
  float v = i < n ? x[i] : 0.0f;
  for (int k = 0; k < 2000; ++k) v = fmaf(v, 0.5f, 0.5f * v);
  if (i < n) y[i] = v + first;
}

__global__ void unset(const float* x, float* tmp, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned b = __float_as_uint(tmp[i]);
  y[i] = b == 0x12345678u ? 0.0f : x[i];
}

__global__ void halfsync(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  if (t < 128) __syncthreads();
  else __syncthreads();
  if (i < n) y[i] = s[t];
}

__global__ void lanesync(const float* x, float* y, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float v = i < n ? x[i] : 0.0f;
  if (t % 32 < 16) __syncwarp(0xffff0000u);
  if (i < n) y[i] = v;
}

__global__ void lanebarrier(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  if (t % 32 != 5) __syncthreads();
  if (i < n) y[i] = s[t];
}

__global__ void early(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i >= n) return;
  s[t] = x[i];
  __syncthreads();
  y[i] = s[t];
}

__global__ void pastshared(const float* x, float* y, int n) {
  __shared__ float s[40];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < 44) s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = t < 40 ? s[t] : x[i];
}

__global__ void pastlocal(const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float a[8];
  for (int k = 0; k < width; ++k) a[k] = i < n ? x[i] : 0.0f;
  if (i < n) y[i] = a[(i + width) % 8];
}

__global__ void pastend(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 0.0f * __uint_as_float(__float_as_uint(x[i + 1]) & 0x007fffffu);
}

__global__ void unsetshared(const float* x, float* y, int n) {
  __shared__ unsigned s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < 200) s[t] = 7;
  __syncthreads();
  if (i < n) y[i] = s[t] == 0x12345678u ? 0.0f : x[i];
}

__global__ void saxpy(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}

__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int k = 128; k > 0; k /= 2) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

__global__ void shuffled(const float* x, float* y, int n) {
  __shared__ float s[8];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float v = i < n ? x[i] : 0.0f;
  for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffffu, v, k);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t < 32) {
    v = t < 8 ? s[t] : 0.0f;
    for (int k = 4; k > 0; k /= 2) v += __shfl_down_sync(0xffffffffu, v, k);
    if (t == 0) y[blockIdx.x] = v;
  }
}

__global__ void transposed(const float* x, float* y, int n) {
  __shared__ float s[16][17];
  int c = threadIdx.x % 16, r = threadIdx.x / 16;
  int side = n;
  int gx = blockIdx.x % ((side + 15) / 16) * 16, gy = blockIdx.x / ((side + 15) / 16) * 16;
  if (gx + c < side && gy + r < side) s[r][c] = x[(gy + r) * side + gx + c];
  __syncthreads();
  if (gy + c < side && gx + r < side) y[(gx + r) * side + gy + c] = s[c][r];
}

__global__ void sameflag(const float* x, float* y, int n) {
  __shared__ int any;
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t == 0) any = 0;
  __syncthreads();
  if (i < n && x[i] >= -1e30f) any = 1;
  __syncthreads();
  if (i < n) y[i] = (float)any;
}

__global__ void warptree(const float* x, float* y, int n) {
  __shared__ volatile float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (t < 128) s[t] = s[t] + s[t + 128];
  __syncthreads();
  if (t < 64) s[t] = s[t] + s[t + 64];
  __syncthreads();
  if (t < 32) {
    s[t] = s[t] + s[t + 32];
    s[t] = s[t] + s[t + 16];
    s[t] = s[t] + s[t + 8];
    s[t] = s[t] + s[t + 4];
    s[t] = s[t] + s[t + 2];
    s[t] = s[t] + s[t + 1];
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

__global__ void vectors(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 3 < n) reinterpret_cast<float4*>(y)[i] = reinterpret_cast<const float4*>(x)[i];
  else for (int k = 4 * i; k < n; ++k) y[k] = x[k];
}

__global__ void bins(const float* x, int* y, int n) {
  __shared__ int s[32];
  int t = threadIdx.x;
  if (t < 32) s[t] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[(int)(fabsf(x[i]) * 31.0f) & 31], 1);
  __syncthreads();
  if (t < 32) y[blockIdx.x * 32 + t] = s[t];
}

__global__ void endless(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  volatile float* v = y;
  if (i == 0) while (v[0] != 12345.0f) { }
}
