// Kernels that break a rule, one each. Their line numbers are part of the tests: keep lines where they are.
#include <cooperative_groups.h>
#include <cassert>

__global__ void writes_nothing(const float* x, float* y, int n) { int i = threadIdx.x; if (i > n) y[i] = x[i]; }
__global__ void reads_past_the_end(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + 1];
}
__global__ void reads_before_the_start(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i - 1];
}
__global__ void writes_past_the_end(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 1.0f;
}
__global__ void writes_before_the_start(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i - 1] = x[i];
}
__global__ void endless(const float* x, float* y, int n) {
    volatile float* flag = y;
    while (flag[0] != 12345.0f) { }
}
__global__ void changes_its_input(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i == 3) const_cast<float*>(x)[i] = 0.0f;
    if (i < n) y[i] = x[i];
}
__global__ void divergent(const float* x, float* y, int n) {
    __shared__ float s[32];
    s[threadIdx.x & 31] = x[0];
    if (threadIdx.x < 16)
        __syncthreads();
    y[threadIdx.x] = x[0];
}
__global__ void two_barriers(const float* x, float* y, int n) {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
}
__global__ void waits_for_ever(const float* x, float* y, int n) {
    if (threadIdx.x == 0) __syncwarp();
    else __syncthreads();
}
__global__ void shared_overrun(const float* x, float* y, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x + n] = x[0];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void dynamic_overrun(const float* x, float* y, int n) {
    extern __shared__ float tile[];
    tile[threadIdx.x + n] = x[0];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}
__device__ int deeper(volatile int* a, int n) {
    volatile int b[512];
    b[n & 511] = a[0];
    return n <= 0 ? b[0] : deeper(b, n - 1) + b[n & 511];
}
__global__ void deep(const float* x, float* y, int n) { volatile int a[1] = {1}; y[0] = deeper(a, 1 << 20); }
__global__ void asserts(const float* x, float* y, int n) {
    assert(threadIdx.x + 1 < blockDim.x);
    y[threadIdx.x] = 1.0f;
}
__global__ void divides(const float* x, float* y, int n) { y[0] = 7 / (n - n); }
__global__ void null_pointer(const float* x, float* y, int n) { float* p = nullptr; p[n == 0 ? 1 : threadIdx.x] = 1.0f; }
__global__ void wild(const float* x, float* y, int n) { reinterpret_cast<float*>(0x123456789000ull)[n] = 1.0f; }
__global__ void no_barrier(const float* in, float* out, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void jumps(const float* x, float* y, int n) {
    // A pointer made of bytes: the instructions in `code` would end the process with a code of their own.
    static const unsigned char code[] = {0x48, 0xc7, 0xc0, 0x39, 0, 0, 0, 0x0f, 0x05, 0xc3};
    reinterpret_cast<void (*)()>(const_cast<unsigned char*>(code))();
}
__global__ void grid_sync(const float* x, float* y, int n) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    y[threadIdx.x] = 1.0f;
    grid.sync();
}
__global__ void bad_mask(const float* x, float* y, int n) { y[threadIdx.x] = __shfl_sync(1u, x[0], 0); }
__global__ void local_overrun(const float* x, float* y, int n) {
    float acc[4];
    for (int i = 0; i <= n; ++i) acc[i] = x[0];
    y[0] = acc[n & 3];
}
__global__ void uninitialised(const float* x, float* y, int n) {
    __shared__ float tile[64];
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void counts_without_atomics(const float* x, float* y, int n) { y[threadIdx.x & 7] += 1.0f; }
__global__ void sets_then_adds(const float* x, float* y, int n) {
    if (threadIdx.x == 0 && blockIdx.x == 0) y[0] = 0.0f;
    atomicAdd(&y[0], x[threadIdx.x]);
}
__global__ void shared_counts(const float* x, float* y, int n) {
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
    bins[threadIdx.x & 7]++;
    __syncthreads();
    if (threadIdx.x < 8) y[threadIdx.x] = bins[threadIdx.x];
}
__global__ void no_second_barrier(const float* x, float* y, int n) {
    __shared__ float tile[64];
    float sum = 0.0f;
    for (int k = 0; k < 2; ++k) {
        tile[threadIdx.x] = x[threadIdx.x] + k;
        __syncthreads();
        sum += tile[63 - threadIdx.x];
    }
    y[threadIdx.x] = sum;
}
__global__ void warp_without_sync(const float* x, float* y, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32)
        for (int d = 32; d > 0; d >>= 1) s[threadIdx.x] += s[threadIdx.x + d];
    if (threadIdx.x == 0) y[0] = s[0];
}
__global__ void blocks_overlap(const float* x, float* y, int n) { y[threadIdx.x] = blockIdx.x; }
__global__ void same_value(const float* x, float* y, int n) {
    __shared__ float s[1];
    s[0] = 5.0f;
    y[0] = 1.0f;
    __syncthreads();
    y[threadIdx.x + 1 < n ? threadIdx.x + 1 : 0] = threadIdx.x + 1 < n ? s[0] : 1.0f;
}
__global__ void warp_with_sync(const float* x, float* y, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int d = 32; d > 0; d >>= 1) {
            float v = s[threadIdx.x + d];
            __syncwarp();
            s[threadIdx.x] += v;
            __syncwarp();
        }
    }
    if (threadIdx.x == 0) y[0] = s[0];
}
__device__ unsigned int finished = 0;
__global__ void last_block_adds_up(const float* x, float* y, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        y[1 + blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];
        y[0] = sum;
    }
}
__global__ void hidden_from_the_watch(const float* in, float* out, int n) {
    __shared__ float tile[64];
    // The watch ends after so many accesses.
    for (int i = 0; i < 5000; ++i) static_cast<volatile float*>(tile)[threadIdx.x] = 2 * in[threadIdx.x];
    __syncthreads();
    tile[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void bytes_side_by_side(const float* x, float* y, int n) {
    __shared__ unsigned char b[64];
    unsigned char* out = reinterpret_cast<unsigned char*>(y);
    b[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = b[63 - threadIdx.x];
}
