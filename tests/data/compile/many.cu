// One file with everything a device compiler has to sort out.
#include <cstdint>
#include <limits>
#include <cmath>
#include "many.cuh"

#define SCALE 2.0f
#define KERNEL(name, op)                                        \
    __global__ void name(const float* x, float* y, int n) {     \
        int i = blockIdx.x * blockDim.x + threadIdx.x;          \
        if (i < n) y[i] = x[i] op SCALE;                        \
    }

typedef struct __align__(16) Pair_t {
    float first;
    float second;
} Pair;

struct Clamp {
    float low, high;
    Clamp(float l, float h) : low(l), high(h) { record("clamp"); }
    __host__ __device__ float operator()(float v) const { return fminf(fmaxf(v, low), high); }
    static void record(const char* what);
    constexpr float width() const { return high - low; }
};

enum Mode { MODE_PLAIN, MODE_TWICE };

__constant__ float weights[16];
__device__ unsigned long long counter;
static const int kTile = 16;
constexpr int rounded(int n) { return (n + kTile - 1) / kTile * kTile; }
int hostOnly = rounded(100);
thread_local int perThread;

extern "C" __global__ void plain(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = INFINITY;
}

namespace outer {
namespace inner {
__global__ void nested(const Pair* pairs, float* y, uint32_t n) {
    uint32_t i = threadIdx.x;
    if (i < n) y[i] = pairs[i].first * pairs[i].second + (i == 0 ? FLT_MAX : float(M_PI));
}
}  // namespace inner
}  // namespace outer

template <typename T, int N = 4>
__launch_bounds__(128, 2) __global__ void generic(const T* x, T* y) {
    __shared__ T tile[rounded(N)];
    tile[threadIdx.x % N] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[0] < std::numeric_limits<T>::max() ? tile[N - 1] : T(MODE_TWICE);
}

__global__ void dynamic(float* y) {
    extern __shared__ float buffer[];
    buffer[threadIdx.x] = y[threadIdx.x] * weights[threadIdx.x & 15];
    __syncthreads();
    y[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
    atomicAdd(&counter, 1ull);
}

KERNEL(scaled, *)

__global__ void clamped(float* y, Clamp clamp) {
    y[threadIdx.x] = squared(clamp(y[threadIdx.x]));
    assert(clamp.low <= clamp.high);
    if (threadIdx.x == 0) printf("%f\n", y[0]);
}

void Clamp::record(const char* what) { hostOnly += what[0]; }

static void launch(float* y, int n) {
    plain<<<1, 256>>>(y, n);
    outer::inner::nested<<<1, 32>>>(nullptr, y, n);
    generic<float><<<1, 128>>>(y, y);
    dynamic<<<1, 256, 1024>>>(y);
}
