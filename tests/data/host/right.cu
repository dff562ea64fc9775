// Kernels that are right on a GPU: the emulation must agree with numpy in every order and with either guard.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;

#define TILE 16

__global__ void vadd(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

__global__ void __launch_bounds__(256) total(const float* x, float* out, int n) {
    __shared__ float partial[8];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = warp_sum(sum);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < 8 ? partial[lane] : 0.0f;
        sum = warp_sum(sum);
        if (lane == 0) atomicAdd(out, sum);
    }
}

__global__ void transpose(const float* in, float* out, int width, int height) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

template <typename T, int B>
__global__ void gemm(const T* A, const T* B_, T* C, int M, int N, int K) {
    __shared__ T as[B][B], bs[B][B];
    int row = blockIdx.y * B + threadIdx.y, col = blockIdx.x * B + threadIdx.x;
    T sum = 0;
    for (int k = 0; k < K; k += B) {
        as[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < K ? A[row * K + k + threadIdx.x] : T(0);
        bs[threadIdx.y][threadIdx.x] = col < N && k + threadIdx.y < K ? B_[(k + threadIdx.y) * N + col] : T(0);
        __syncthreads();
        for (int i = 0; i < B; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

__global__ void softmax(const float* x, float* y, int d) {
    extern __shared__ float scratch[];
    const float* row = x + blockIdx.x * d;
    float best = -INFINITY;
    for (int i = threadIdx.x; i < d; i += blockDim.x) best = fmaxf(best, row[i]);
    scratch[threadIdx.x] = best;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) scratch[threadIdx.x] = max(scratch[threadIdx.x], scratch[threadIdx.x + s]);
        __syncthreads();
    }
    best = scratch[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = threadIdx.x; i < d; i += blockDim.x) sum += __expf(row[i] - best);
    scratch[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) scratch[threadIdx.x] += scratch[threadIdx.x + s];
        __syncthreads();
    }
    float inverse = __fdividef(1.0f, scratch[0]);
    for (int i = threadIdx.x; i < d; i += blockDim.x) y[blockIdx.x * d + i] = __expf(row[i] - best) * inverse;
}

__global__ void stencil(const double* in, double* out, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    if (x == 0 || y == 0 || x == nx - 1 || y == ny - 1) {
        out[y * nx + x] = in[y * nx + x];
        return;
    }
    int i = y * nx + x;
    out[i] = 0.2 * (in[i] + in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx]);
}

__global__ void histogram(const unsigned char* x, unsigned int* h, int n) {
    __shared__ unsigned int bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&h[i], bins[i]);
}

__global__ void block_scan(const int* x, int* y, int n) {
    extern __shared__ int temp[];
    int i = threadIdx.x;
    temp[i] = i < n ? x[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        int v = i >= offset ? temp[i - offset] : 0;
        __syncthreads();
        temp[i] += v;
        __syncthreads();
    }
    if (i < n) y[i] = temp[i];
}

__global__ void scale4(const float4* x, float4* y, float a, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n4) return;
    float4 v = x[i];
    y[i] = make_float4(v.x * a, v.y * a, v.z * a, v.w * a);
}

__global__ void scale_vector_and_tail(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int n4 = n / 4;
    if (i < n4) {
        float4 v = reinterpret_cast<const float4*>(x)[i];
        v.x *= a, v.y *= a, v.z *= a, v.w *= a;
        reinterpret_cast<float4*>(y)[i] = v;
    }
    if (i < n % 4) y[4 * n4 + i] = a * x[4 * n4 + i];
}

__global__ void long_sum(const long long* x, unsigned long long* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(out, (unsigned long long)x[i]);
}

__global__ void half_axpy(const __half* x, __half* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hfma(__float2half(a), x[i], y[i]);
}

__global__ void bf16_double(const __nv_bfloat16* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __bfloat162float(x[i] + x[i]);
}

__global__ void tile_reduce(const float* x, float* out, int n) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int i = blockIdx.x * block.size() + block.thread_rank();
    float v = i < n ? x[i] : 0.0f;
    for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
    float again = cg::reduce(tile, tile.thread_rank() == 0 ? v : 0.0f, cg::plus<float>());
    if (tile.thread_rank() == 0) atomicAdd(out, again);
}

__global__ void count_positive(const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0.0f) {
        auto group = cg::coalesced_threads();
        if (group.thread_rank() == 0) atomicAdd(out, (int)group.size());
    }
}

__global__ void three_dimensions(int* out, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < nx && y < ny && z < nz) out[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z;
}

__device__ int factor = 3;
__constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__device__ const int offset_of[2] = {10, 20};

__global__ void globals(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i] * weights[i & 3] * factor + offset_of[i & 1];
    __syncthreads();
    if (i == 0) factor = 5;
}

__global__ void warp_functions(const int* x, unsigned* out) {
    int lane = threadIdx.x & 31;
    int v = x[threadIdx.x];
    unsigned all = 0xffffffffu;
    out[0 * 32 + lane] = __ballot_sync(all, v & 1);
    out[1 * 32 + lane] = __any_sync(all, v > 1000) + 2 * __all_sync(all, v < 1000);
    out[2 * 32 + lane] = __shfl_xor_sync(all, v, 1);
    out[3 * 32 + lane] = __shfl_up_sync(all, v, 3, 8);
    out[4 * 32 + lane] = __shfl_sync(all, v, 5, 16);
    out[5 * 32 + lane] = __match_any_sync(all, v & 3);
    out[6 * 32 + lane] = __reduce_max_sync(all, v);
    out[7 * 32 + lane] = __reduce_add_sync(all, (unsigned)v);
    if (lane < 10) out[8 * 32 + lane] = __activemask();
    else out[8 * 32 + lane] = __shfl_down_sync(0xfffffc00u, v, 1);
    double d = v;
    out[9 * 32 + lane] = (unsigned)__shfl_down_sync(all, d, 4);
    out[10 * 32 + lane] = __syncthreads_count(v & 1) * 100 + __syncthreads_or(v > 1000) * 10 + __syncthreads_and(v < 1000);
}

__global__ void intrinsics(const unsigned* x, unsigned* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    out[0 * n + i] = __popc(v);
    out[1 * n + i] = __clz(v);
    out[2 * n + i] = __ffs(v);
    out[3 * n + i] = __brev(v);
    out[4 * n + i] = __byte_perm(v, 0x01020304u, 0x3456);
    out[5 * n + i] = __funnelshift_l(v, v, 7);
    out[6 * n + i] = __umulhi(v, 0x9e3779b9u);
    out[7 * n + i] = __dp4a(v, 0x01010101u, 5u);
    out[8 * n + i] = __float_as_uint(__uint_as_float(v));
    out[9 * n + i] = __float2uint_rn(__saturatef((float)v)) + min(v, 7) + (unsigned)abs(-3);
}

// Threads past the end leave before the barriers: from Volta on those wait for the threads that are left.
__global__ void leaves_early(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    int last = min(n - blockIdx.x * blockDim.x, blockDim.x) - 1;
    out[i] = tile[last - threadIdx.x];
}
