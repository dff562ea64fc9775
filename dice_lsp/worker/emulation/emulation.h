// CUDA's device language for a C++ compiler of the host: what a kernel may name without an include. Precompiled.
//
// Threads are fibers of the runner; threadIdx and its kin are plain variables that it sets. All of a block's threads run
// on one processor, one after the other between barriers, so atomics are plain operations.
//
// The calling code's qualifiers are rewritten beforehand where a macro cannot do it (see host.py): variables marked
// __device__ or __constant__ become DICE_EMU_DEVICE_VARIABLE, extern __shared__ arrays become DICE_EMU_DYNAMIC_SHARED.
#ifndef DICE_EMU_EMULATION_H
#define DICE_EMU_EMULATION_H

#include "interface.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __device_builtin__
// Without `used` the compiler would take a shared array that is never written for one of zeros.
#define __shared__ static __attribute__((used))
#define __nv_pure__

// Shared variables have no initialiser in CUDA, so they are the only ones in .bss; device variables get their own
// section, constants another one, because GCC does not mix the two.
#define DICE_EMU_DEVICE_VARIABLE __attribute__((section("dice_device"), used))
#define DICE_EMU_DEVICE_CONSTANT __attribute__((section("dice_constant"), used))
// For qualifiers that a macro of the text hides from the rewriting.
#define __constant__ DICE_EMU_DEVICE_VARIABLE
#define __managed__ DICE_EMU_DEVICE_VARIABLE
#define DICE_EMU_REGISTER __attribute__((visibility("hidden"), section("dice_registers")))

#define DICE_EMU_INLINE inline __attribute__((always_inline))
#define DICE_EMU_LINE int dice_emu_line = __builtin_LINE()

extern "C" {
extern __attribute__((visibility("hidden"))) char* dice_emu_dynamic;
extern __attribute__((visibility("hidden"))) unsigned dice_emu_dynamic_bytes;
}

#define DICE_EMU_VECTORS(T, base, a2, a4)                                                                              \
    struct base##1 {                                                                                                   \
        T x;                                                                                                           \
    };                                                                                                                 \
    struct __attribute__((aligned(a2))) base##2 {                                                                      \
        T x, y;                                                                                                        \
    };                                                                                                                 \
    struct base##3 {                                                                                                   \
        T x, y, z;                                                                                                     \
    };                                                                                                                 \
    struct __attribute__((aligned(a4))) base##4 {                                                                      \
        T x, y, z, w;                                                                                                  \
    };                                                                                                                 \
    DICE_EMU_INLINE base##1 make_##base##1(T x) { return {x}; }                                                        \
    DICE_EMU_INLINE base##2 make_##base##2(T x, T y) { return {x, y}; }                                                \
    DICE_EMU_INLINE base##3 make_##base##3(T x, T y, T z) { return {x, y, z}; }                                        \
    DICE_EMU_INLINE base##4 make_##base##4(T x, T y, T z, T w) { return {x, y, z, w}; }

DICE_EMU_VECTORS(signed char, char, 2, 4)
DICE_EMU_VECTORS(unsigned char, uchar, 2, 4)
DICE_EMU_VECTORS(short, short, 4, 8)
DICE_EMU_VECTORS(unsigned short, ushort, 4, 8)
DICE_EMU_VECTORS(int, int, 8, 16)
DICE_EMU_VECTORS(unsigned int, uint, 8, 16)
DICE_EMU_VECTORS(long, long, 16, 16)
DICE_EMU_VECTORS(unsigned long, ulong, 16, 16)
DICE_EMU_VECTORS(long long, longlong, 16, 16)
DICE_EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
DICE_EMU_VECTORS(float, float, 8, 16)
DICE_EMU_VECTORS(double, double, 16, 16)
#undef DICE_EMU_VECTORS

// Handles that other kernels of a file may take; one that uses them is refused.
using cudaTextureObject_t = unsigned long long;
using cudaSurfaceObject_t = unsigned long long;

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

extern __attribute__((visibility("hidden"))) uint3 threadIdx, blockIdx;
extern __attribute__((visibility("hidden"))) dim3 blockDim, gridDim;
static const int warpSize = 32;

// An extern __shared__ array outside any function: it is where the launch's dynamic shared memory begins.
namespace dice_emu {
template <class T>
struct dynamic_array {
    constexpr dynamic_array() {}
    DICE_EMU_INLINE operator T*() const { return reinterpret_cast<T*>(dice_emu_dynamic); }
    template <class U>
    DICE_EMU_INLINE explicit operator U*() const {
        return reinterpret_cast<U*>(dice_emu_dynamic);
    }
};
}  // namespace dice_emu

DICE_EMU_INLINE void __syncthreads(DICE_EMU_LINE) { dice_emu_barrier(dice_emu_line, 0, 0); }
DICE_EMU_INLINE int __syncthreads_count(int p, DICE_EMU_LINE) { return dice_emu_barrier(dice_emu_line, 1, p); }
DICE_EMU_INLINE int __syncthreads_and(int p, DICE_EMU_LINE) { return dice_emu_barrier(dice_emu_line, 2, p); }
DICE_EMU_INLINE int __syncthreads_or(int p, DICE_EMU_LINE) { return dice_emu_barrier(dice_emu_line, 3, p); }
DICE_EMU_INLINE void __syncwarp(unsigned mask = 0xffffffffu, DICE_EMU_LINE) { dice_emu_warp(dice_emu_syncwarp, mask, 0, 0, dice_emu_line); }
DICE_EMU_INLINE void __threadfence() { dice_emu_fence(1); }
DICE_EMU_INLINE void __threadfence_block() { dice_emu_fence(0); }
DICE_EMU_INLINE void __threadfence_system() { __threadfence(); }
DICE_EMU_INLINE void __nanosleep(unsigned) { dice_emu_yield(); }
[[noreturn]] DICE_EMU_INLINE void __trap(DICE_EMU_LINE) { dice_emu_stop("fault", "__trap was called", dice_emu_line); }
DICE_EMU_INLINE void __brkpt() {}
DICE_EMU_INLINE unsigned __activemask(DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_active, 0, 0, 0, dice_emu_line)); }
DICE_EMU_INLINE unsigned __ballot_sync(unsigned mask, int p, DICE_EMU_LINE) {
    return static_cast<unsigned>(dice_emu_warp(dice_emu_ballot, mask, p != 0, 0, dice_emu_line));
}
DICE_EMU_INLINE int __any_sync(unsigned mask, int p, DICE_EMU_LINE) { return __ballot_sync(mask, p, dice_emu_line) != 0; }
DICE_EMU_INLINE int __all_sync(unsigned mask, int p, DICE_EMU_LINE) { return __ballot_sync(mask, !p, dice_emu_line) == 0; }

namespace dice_emu {

template <class T>
DICE_EMU_INLINE unsigned long long bits_of(const T& v) {
    static_assert(sizeof(T) <= 8, "warp operations take values of at most 8 bytes");
    unsigned long long b = 0;
    memcpy(&b, &v, sizeof(T));
    return b;
}
template <class T>
DICE_EMU_INLINE T from_bits(unsigned long long b) {
    T v;
    memcpy(static_cast<void*>(&v), &b, sizeof(T));
    return v;
}
template <class T>
DICE_EMU_INLINE T shuffle(int kind, unsigned mask, const T& v, int argument, int width, int line) {
    unsigned lane_argument = kind == dice_emu_shfl_idx ? static_cast<unsigned>(argument) & 31u
                             : static_cast<unsigned>(argument) > 63u ? 63u : static_cast<unsigned>(argument);
    return from_bits<T>(dice_emu_warp(kind, mask, bits_of(v), lane_argument | static_cast<unsigned>(width) << 8, line));
}
// Lets a template take arithmetic types only, as CUDA's overloads do.
template <class T>
using number = typename std::enable_if<std::is_arithmetic<T>::value, T>::type;

}  // namespace dice_emu

template <class T>
DICE_EMU_INLINE T __shfl_sync(unsigned mask, T v, int lane, int width = 32, DICE_EMU_LINE) {
    return dice_emu::shuffle(dice_emu_shfl_idx, mask, v, lane, width, dice_emu_line);
}
template <class T>
DICE_EMU_INLINE T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, DICE_EMU_LINE) {
    return dice_emu::shuffle(dice_emu_shfl_up, mask, v, static_cast<int>(delta), width, dice_emu_line);
}
template <class T>
DICE_EMU_INLINE T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, DICE_EMU_LINE) {
    return dice_emu::shuffle(dice_emu_shfl_down, mask, v, static_cast<int>(delta), width, dice_emu_line);
}
template <class T>
DICE_EMU_INLINE T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, DICE_EMU_LINE) {
    return dice_emu::shuffle(dice_emu_shfl_xor, mask, v, lanes, width, dice_emu_line);
}
template <class T>
DICE_EMU_INLINE unsigned __match_any_sync(unsigned mask, T v, DICE_EMU_LINE) {
    return static_cast<unsigned>(dice_emu_warp(dice_emu_match_any, mask, dice_emu::bits_of(v), 0, dice_emu_line));
}
template <class T>
DICE_EMU_INLINE unsigned __match_all_sync(unsigned mask, T v, int* all, DICE_EMU_LINE) {
    unsigned same = static_cast<unsigned>(dice_emu_warp(dice_emu_match_all, mask, dice_emu::bits_of(v), 0, dice_emu_line));
    *all = same != 0;
    return same;
}
DICE_EMU_INLINE unsigned __reduce_add_sync(unsigned m, unsigned v, DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_reduce_add, m, v, 0, dice_emu_line)); }
DICE_EMU_INLINE unsigned __reduce_min_sync(unsigned m, unsigned v, DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_reduce_min, m, v, 0, dice_emu_line)); }
DICE_EMU_INLINE unsigned __reduce_max_sync(unsigned m, unsigned v, DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_reduce_max, m, v, 0, dice_emu_line)); }
DICE_EMU_INLINE int __reduce_add_sync(unsigned m, int v, DICE_EMU_LINE) { return static_cast<int>(dice_emu_warp(dice_emu_reduce_add, m, static_cast<unsigned>(v), 0, dice_emu_line)); }
DICE_EMU_INLINE int __reduce_min_sync(unsigned m, int v, DICE_EMU_LINE) { return static_cast<int>(dice_emu_warp(dice_emu_reduce_min_signed, m, static_cast<unsigned>(v), 0, dice_emu_line)); }
DICE_EMU_INLINE int __reduce_max_sync(unsigned m, int v, DICE_EMU_LINE) { return static_cast<int>(dice_emu_warp(dice_emu_reduce_max_signed, m, static_cast<unsigned>(v), 0, dice_emu_line)); }
DICE_EMU_INLINE unsigned __reduce_and_sync(unsigned m, unsigned v, DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_reduce_and, m, v, 0, dice_emu_line)); }
DICE_EMU_INLINE unsigned __reduce_or_sync(unsigned m, unsigned v, DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_reduce_or, m, v, 0, dice_emu_line)); }
DICE_EMU_INLINE unsigned __reduce_xor_sync(unsigned m, unsigned v, DICE_EMU_LINE) { return static_cast<unsigned>(dice_emu_warp(dice_emu_reduce_xor, m, v, 0, dice_emu_line)); }

// The second argument takes its type from the first, as in CUDA's overloads. They read and write like any access, so a
// guard page sees them too; `volatile` is how the watch for races knows them.

namespace dice_emu {
template <class T>
struct identity {
    using type = T;
};
template <class T>
using same = typename identity<T>::type;
}  // namespace dice_emu

#define DICE_EMU_ATOMIC(name, expression)                                                                              \
    template <class T>                                                                                                 \
    DICE_EMU_INLINE T name(T* p, dice_emu::same<T> v) {                                                                \
        volatile T* q = p;                                                                                             \
        dice_emu_atomic(1);                                                                                            \
        T old = *q;                                                                                                    \
        *q = static_cast<T>(expression);                                                                               \
        dice_emu_atomic(0);                                                                                            \
        return old;                                                                                                    \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    DICE_EMU_INLINE T name##_block(T* p, dice_emu::same<T> v) {                                                        \
        return name(p, v);                                                                                             \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    DICE_EMU_INLINE T name##_system(T* p, dice_emu::same<T> v) {                                                       \
        return name(p, v);                                                                                             \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    DICE_EMU_INLINE T name(volatile T* p, dice_emu::same<T> v) {                                                       \
        return name(const_cast<T*>(p), v);                                                                             \
    }

DICE_EMU_ATOMIC(atomicAdd, old + v)
DICE_EMU_ATOMIC(atomicSub, old - v)
DICE_EMU_ATOMIC(atomicExch, v)
DICE_EMU_ATOMIC(atomicMin, v < old ? v : old)
DICE_EMU_ATOMIC(atomicMax, v > old ? v : old)
DICE_EMU_ATOMIC(atomicAnd, old & v)
DICE_EMU_ATOMIC(atomicOr, old | v)
DICE_EMU_ATOMIC(atomicXor, old ^ v)
DICE_EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
DICE_EMU_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)

template <class T>
DICE_EMU_INLINE T atomicCAS(T* p, dice_emu::same<T> expected, dice_emu::same<T> v) {
    volatile T* q = p;
    dice_emu_atomic(1);
    T old = *q;
    if (old == expected) *q = v;
    dice_emu_atomic(0);
    return old;
}
template <class T>
DICE_EMU_INLINE T atomicCAS(volatile T* p, dice_emu::same<T> expected, dice_emu::same<T> v) {
    return atomicCAS(const_cast<T*>(p), expected, v);
}
template <class T>
DICE_EMU_INLINE T atomicCAS_block(T* p, dice_emu::same<T> expected, dice_emu::same<T> v) {
    return atomicCAS(p, expected, v);
}
template <class T>
DICE_EMU_INLINE T atomicCAS_system(T* p, dice_emu::same<T> expected, dice_emu::same<T> v) {
    return atomicCAS(p, expected, v);
}

// A float's min and max give the other operand for a NaN, as fminf and fmaxf do.

template <class A, class B, class = dice_emu::number<A>, class = dice_emu::number<B>>
DICE_EMU_INLINE constexpr typename std::common_type<A, B>::type max(A a, B b) {
    using T = typename std::common_type<A, B>::type;
    T x = static_cast<T>(a), y = static_cast<T>(b);
    return x != x ? y : y != y ? x : x < y ? y : x;
}
template <class A, class B, class = dice_emu::number<A>, class = dice_emu::number<B>>
DICE_EMU_INLINE constexpr typename std::common_type<A, B>::type min(A a, B b) {
    using T = typename std::common_type<A, B>::type;
    T x = static_cast<T>(a), y = static_cast<T>(b);
    return x != x ? y : y != y ? x : y < x ? y : x;
}
DICE_EMU_INLINE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
DICE_EMU_INLINE unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
DICE_EMU_INLINE long long llmin(long long a, long long b) { return a < b ? a : b; }
DICE_EMU_INLINE long long llmax(long long a, long long b) { return a > b ? a : b; }
DICE_EMU_INLINE unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
DICE_EMU_INLINE unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }

DICE_EMU_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
DICE_EMU_INLINE float rsqrtf(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
DICE_EMU_INLINE float rsqrt(float x) { return rsqrtf(x); }
DICE_EMU_INLINE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
DICE_EMU_INLINE double rcbrt(double x) { return 1.0 / cbrt(x); }
DICE_EMU_INLINE float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
DICE_EMU_INLINE double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
DICE_EMU_INLINE float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
DICE_EMU_INLINE float norm4df(float x, float y, float z, float w) { return sqrtf(x * x + y * y + z * z + w * w); }
DICE_EMU_INLINE float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
DICE_EMU_INLINE float rnorm4df(float x, float y, float z, float w) { return 1.0f / norm4df(x, y, z, w); }
DICE_EMU_INLINE double norm3d(double x, double y, double z) { return sqrt(x * x + y * y + z * z); }
DICE_EMU_INLINE double norm4d(double x, double y, double z, double w) { return sqrt(x * x + y * y + z * z + w * w); }
DICE_EMU_INLINE double sinpi(double x) {
    double r = fmod(x, 2.0);
    return r == 0.0 || r == 1.0 || r == -1.0 ? copysign(0.0, x) : sin(r * 3.14159265358979323846);
}
DICE_EMU_INLINE double cospi(double x) {
    double r = fabs(fmod(x, 2.0));
    return r == 0.5 || r == 1.5 ? 0.0 : cos(r * 3.14159265358979323846);
}
DICE_EMU_INLINE float sinpif(float x) { return static_cast<float>(sinpi(x)); }
DICE_EMU_INLINE float cospif(float x) { return static_cast<float>(cospi(x)); }
DICE_EMU_INLINE void sincospi(double x, double* s, double* c) {
    *s = sinpi(x);
    *c = cospi(x);
}
DICE_EMU_INLINE void sincospif(float x, float* s, float* c) {
    *s = sinpif(x);
    *c = cospif(x);
}
DICE_EMU_INLINE double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
DICE_EMU_INLINE float normcdff(float x) { return static_cast<float>(normcdf(x)); }
DICE_EMU_INLINE double erfcx(double x) { return static_cast<double>(expl(static_cast<long double>(x) * x) * erfcl(x)); }
DICE_EMU_INLINE float erfcxf(float x) { return static_cast<float>(erfcx(x)); }
#if !defined(__GLIBC__)
DICE_EMU_INLINE double exp10(double x) { return pow(10.0, x); }
DICE_EMU_INLINE float exp10f(float x) { return powf(10.0f, x); }
DICE_EMU_INLINE void sincos(double x, double* s, double* c) { *s = sin(x), *c = cos(x); }
DICE_EMU_INLINE void sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
#endif
DICE_EMU_INLINE float fdividef(float x, float y) { return x / y; }

DICE_EMU_INLINE float __expf(float x) { return expf(x); }
DICE_EMU_INLINE float __exp10f(float x) { return exp10f(x); }
DICE_EMU_INLINE float __logf(float x) { return logf(x); }
DICE_EMU_INLINE float __log2f(float x) { return log2f(x); }
DICE_EMU_INLINE float __log10f(float x) { return log10f(x); }
DICE_EMU_INLINE float __powf(float x, float y) { return powf(x, y); }
DICE_EMU_INLINE float __sinf(float x) { return sinf(x); }
DICE_EMU_INLINE float __cosf(float x) { return cosf(x); }
DICE_EMU_INLINE float __tanf(float x) { return tanf(x); }
DICE_EMU_INLINE float __tanhf(float x) { return tanhf(x); }
DICE_EMU_INLINE void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
DICE_EMU_INLINE float __fdividef(float x, float y) { return x / y; }
DICE_EMU_INLINE float __saturatef(float x) { return x != x ? 0.0f : x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }
DICE_EMU_INLINE float saturate(float x) { return __saturatef(x); }
DICE_EMU_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }

// Rounding modes: `rn` is the processor's; the others are made from a result of twice the precision.
namespace dice_emu {
DICE_EMU_INLINE float directed(double exact, char mode) {
    float r = static_cast<float>(exact);
    if (mode == 'n' || static_cast<double>(r) == exact || exact != exact) return r;
    bool up = mode == 'u' || (mode == 'z' && exact < 0);
    if (up && static_cast<double>(r) < exact) return nextafterf(r, __builtin_inff());
    if (!up && static_cast<double>(r) > exact) return nextafterf(r, -__builtin_inff());
    return r;
}
}  // namespace dice_emu
#define DICE_EMU_ROUNDED(letter)                                                                                       \
    DICE_EMU_INLINE float __fadd_r##letter(float a, float b) { return dice_emu::directed(static_cast<double>(a) + b, #letter[0]); }       \
    DICE_EMU_INLINE float __fsub_r##letter(float a, float b) { return dice_emu::directed(static_cast<double>(a) - b, #letter[0]); }       \
    DICE_EMU_INLINE float __fmul_r##letter(float a, float b) { return dice_emu::directed(static_cast<double>(a) * b, #letter[0]); }       \
    DICE_EMU_INLINE float __fdiv_r##letter(float a, float b) { return #letter[0] == 'n' ? a / b : dice_emu::directed(static_cast<double>(a) / b, #letter[0]); } \
    DICE_EMU_INLINE float __frcp_r##letter(float a) { return #letter[0] == 'n' ? 1.0f / a : dice_emu::directed(1.0 / static_cast<double>(a), #letter[0]); }    \
    DICE_EMU_INLINE float __fsqrt_r##letter(float a) { return #letter[0] == 'n' ? sqrtf(a) : dice_emu::directed(sqrt(static_cast<double>(a)), #letter[0]); }   \
    DICE_EMU_INLINE float __fmaf_r##letter(float a, float b, float c) {                                                \
        return #letter[0] == 'n' ? fmaf(a, b, c) : dice_emu::directed(static_cast<double>(a) * b + c, #letter[0]);     \
    }                                                                                                                  \
    DICE_EMU_INLINE float __double2float_r##letter(double a) { return dice_emu::directed(a, #letter[0]); }
DICE_EMU_ROUNDED(n)
DICE_EMU_ROUNDED(z)
DICE_EMU_ROUNDED(u)
DICE_EMU_ROUNDED(d)
#undef DICE_EMU_ROUNDED
DICE_EMU_INLINE double __dadd_rn(double a, double b) { return a + b; }
DICE_EMU_INLINE double __dsub_rn(double a, double b) { return a - b; }
DICE_EMU_INLINE double __dmul_rn(double a, double b) { return a * b; }
DICE_EMU_INLINE double __ddiv_rn(double a, double b) { return a / b; }
DICE_EMU_INLINE double __drcp_rn(double a) { return 1.0 / a; }
DICE_EMU_INLINE double __dsqrt_rn(double a) { return sqrt(a); }
DICE_EMU_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// Conversions to integers saturate and give 0 for a NaN on a GPU.
namespace dice_emu {
template <class I>
DICE_EMU_INLINE I to_integer(double x) {
    if (x != x) return 0;
    // The bounds as doubles may round up to one past the largest value, hence `>=`.
    if (x <= static_cast<double>(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    if (x >= static_cast<double>(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
    return static_cast<I>(x);
}
}  // namespace dice_emu
#define DICE_EMU_CONVERT(from, T)                                                                                      \
    DICE_EMU_INLINE int __##from##2int_rn(T x) { return dice_emu::to_integer<int>(rint(static_cast<double>(x))); }     \
    DICE_EMU_INLINE int __##from##2int_rz(T x) { return dice_emu::to_integer<int>(trunc(static_cast<double>(x))); }    \
    DICE_EMU_INLINE int __##from##2int_ru(T x) { return dice_emu::to_integer<int>(ceil(static_cast<double>(x))); }     \
    DICE_EMU_INLINE int __##from##2int_rd(T x) { return dice_emu::to_integer<int>(floor(static_cast<double>(x))); }    \
    DICE_EMU_INLINE unsigned __##from##2uint_rn(T x) { return dice_emu::to_integer<unsigned>(rint(static_cast<double>(x))); }   \
    DICE_EMU_INLINE unsigned __##from##2uint_rz(T x) { return dice_emu::to_integer<unsigned>(trunc(static_cast<double>(x))); }  \
    DICE_EMU_INLINE unsigned __##from##2uint_ru(T x) { return dice_emu::to_integer<unsigned>(ceil(static_cast<double>(x))); }   \
    DICE_EMU_INLINE unsigned __##from##2uint_rd(T x) { return dice_emu::to_integer<unsigned>(floor(static_cast<double>(x))); }  \
    DICE_EMU_INLINE long long __##from##2ll_rn(T x) { return dice_emu::to_integer<long long>(rint(static_cast<double>(x))); }   \
    DICE_EMU_INLINE long long __##from##2ll_rz(T x) { return dice_emu::to_integer<long long>(trunc(static_cast<double>(x))); }  \
    DICE_EMU_INLINE unsigned long long __##from##2ull_rn(T x) { return dice_emu::to_integer<unsigned long long>(rint(static_cast<double>(x))); } \
    DICE_EMU_INLINE unsigned long long __##from##2ull_rz(T x) { return dice_emu::to_integer<unsigned long long>(trunc(static_cast<double>(x))); }
DICE_EMU_CONVERT(float, float)
DICE_EMU_CONVERT(double, double)
#undef DICE_EMU_CONVERT
DICE_EMU_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
DICE_EMU_INLINE float __int2float_rz(int x) { return dice_emu::directed(x, 'z'); }
DICE_EMU_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
DICE_EMU_INLINE float __uint2float_rz(unsigned x) { return dice_emu::directed(x, 'z'); }
DICE_EMU_INLINE float __ll2float_rn(long long x) { return static_cast<float>(x); }
DICE_EMU_INLINE float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
DICE_EMU_INLINE double __int2double_rn(int x) { return x; }
DICE_EMU_INLINE double __uint2double_rn(unsigned x) { return x; }
DICE_EMU_INLINE double __ll2double_rn(long long x) { return static_cast<double>(x); }
DICE_EMU_INLINE double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }

DICE_EMU_INLINE int __float_as_int(float x) { return dice_emu::from_bits<int>(dice_emu::bits_of(x)); }
DICE_EMU_INLINE unsigned __float_as_uint(float x) { return dice_emu::from_bits<unsigned>(dice_emu::bits_of(x)); }
DICE_EMU_INLINE float __int_as_float(int x) { return dice_emu::from_bits<float>(dice_emu::bits_of(x)); }
DICE_EMU_INLINE float __uint_as_float(unsigned x) { return dice_emu::from_bits<float>(dice_emu::bits_of(x)); }
DICE_EMU_INLINE long long __double_as_longlong(double x) { return dice_emu::from_bits<long long>(dice_emu::bits_of(x)); }
DICE_EMU_INLINE double __longlong_as_double(long long x) { return dice_emu::from_bits<double>(dice_emu::bits_of(x)); }
DICE_EMU_INLINE int __double2hiint(double x) { return static_cast<int>(dice_emu::bits_of(x) >> 32); }
DICE_EMU_INLINE int __double2loint(double x) { return static_cast<int>(dice_emu::bits_of(x) & 0xffffffffu); }
DICE_EMU_INLINE double __hiloint2double(int hi, int lo) {
    return dice_emu::from_bits<double>(static_cast<unsigned long long>(static_cast<unsigned>(hi)) << 32 | static_cast<unsigned>(lo));
}

DICE_EMU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
DICE_EMU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
DICE_EMU_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
DICE_EMU_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
DICE_EMU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
DICE_EMU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
DICE_EMU_INLINE unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
DICE_EMU_INLINE unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
DICE_EMU_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned selector = s >> (4 * i) & 15;
        unsigned byte = static_cast<unsigned>(both >> (8 * (selector & 7))) & 255;
        if (selector & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << (8 * i);
    }
    return r;
}
DICE_EMU_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return static_cast<unsigned>((static_cast<unsigned long long>(hi) << 32 | lo) << (n & 31) >> 32);
}
DICE_EMU_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return static_cast<unsigned>((static_cast<unsigned long long>(hi) << 32 | lo) >> (n & 31));
}
DICE_EMU_INLINE unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n) { return n >= 32 ? lo : __funnelshift_l(lo, hi, n); }
DICE_EMU_INLINE unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n) { return n >= 32 ? hi : __funnelshift_r(lo, hi, n); }
DICE_EMU_INLINE int __mul24(int a, int b) { return static_cast<int>(static_cast<unsigned>((a << 8 >> 8)) * static_cast<unsigned>((b << 8 >> 8))); }
DICE_EMU_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
DICE_EMU_INLINE int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
DICE_EMU_INLINE unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
DICE_EMU_INLINE long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
DICE_EMU_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
DICE_EMU_INLINE unsigned __sad(int a, int b, unsigned c) { return static_cast<unsigned>(llabs(static_cast<long long>(a) - b)) + c; }
DICE_EMU_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
DICE_EMU_INLINE int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
DICE_EMU_INLINE int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
DICE_EMU_INLINE unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<unsigned long long>(a) + b) >> 1); }
DICE_EMU_INLINE unsigned __urhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<unsigned long long>(a) + b + 1) >> 1); }
DICE_EMU_INLINE int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
    return c;
}
DICE_EMU_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
}
DICE_EMU_INLINE int __dp2a_lo(int a, int b, int c) {
    return c + static_cast<short>(a) * static_cast<signed char>(b) + (a >> 16) * static_cast<signed char>(b >> 8);
}
DICE_EMU_INLINE int __dp2a_hi(int a, int b, int c) {
    return c + static_cast<short>(a) * static_cast<signed char>(b >> 16) + (a >> 16) * static_cast<signed char>(b >> 24);
}
DICE_EMU_INLINE unsigned __fns(unsigned mask, unsigned base, int offset) {
    if (offset == 0) return mask >> base & 1 ? base : 0xffffffffu;
    int step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -offset;
    for (int i = static_cast<int>(base); i >= 0 && i < 32; i += step)
        if (mask >> i & 1 && --left == 0) return static_cast<unsigned>(i);
    return 0xffffffffu;
}
DICE_EMU_INLINE unsigned __vadd4(unsigned a, unsigned b) { return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u); }

#define DICE_EMU_LOAD(name)                                                                                            \
    template <class T>                                                                                                 \
    DICE_EMU_INLINE T name(const T* p) {                                                                               \
        return *p;                                                                                                     \
    }
DICE_EMU_LOAD(__ldg)
DICE_EMU_LOAD(__ldcg)
DICE_EMU_LOAD(__ldca)
DICE_EMU_LOAD(__ldcs)
DICE_EMU_LOAD(__ldlu)
DICE_EMU_LOAD(__ldcv)
#undef DICE_EMU_LOAD
#define DICE_EMU_STORE(name)                                                                                           \
    template <class T>                                                                                                 \
    DICE_EMU_INLINE void name(T* p, dice_emu::same<T> v) {                                                             \
        *p = v;                                                                                                        \
    }
DICE_EMU_STORE(__stwb)
DICE_EMU_STORE(__stcg)
DICE_EMU_STORE(__stcs)
DICE_EMU_STORE(__stwt)
#undef DICE_EMU_STORE
DICE_EMU_INLINE void __prefetch_global_l1(const void*) {}
DICE_EMU_INLINE void __prefetch_global_l2(const void*) {}
DICE_EMU_INLINE void __builtin_nv_assume(bool) {}
#define __builtin_assume(condition) static_cast<void>(0)
DICE_EMU_INLINE long long clock64() { return static_cast<long long>(dice_emu_clock()); }
DICE_EMU_INLINE unsigned long long __globaltimer() { return dice_emu_clock(); }

// What a kernel prints is dropped.
template <class... A>
DICE_EMU_INLINE int dice_emu_printf(const char*, A...) {
    return static_cast<int>(sizeof...(A));
}

namespace dice_emu {

template <class P>
struct parameter {
    using plain = typename std::remove_cv<typename std::remove_reference<P>::type>::type;
    static constexpr unsigned kind = std::is_floating_point<plain>::value                                     ? 'f'
                                     : std::is_integral<plain>::value && std::is_signed<plain>::value         ? 'i'
                                     : std::is_integral<plain>::value || std::is_enum<plain>::value           ? 'u'
                                                                                                              : 'b';
    static constexpr dice_emu_param value{sizeof(plain), kind};
    static DICE_EMU_INLINE plain get(const dice_emu_arg& a) {
        static_assert(std::is_trivially_copyable<plain>::value, "a parameter must be a pointer, a number or plain data");
        if constexpr (std::is_arithmetic<plain>::value || std::is_enum<plain>::value) {
            // A reference function may take another number type than the kernel whose argument this is.
            if (a.kind != 'b' && (a.kind != kind || a.size != sizeof(plain))) {
                unsigned long long bits = 0;
                memcpy(&bits, a.data, a.size < 8 ? a.size : 8);
                if (a.kind == 'f') return static_cast<plain>(a.size == 4 ? static_cast<double>(from_bits<float>(bits)) : from_bits<double>(bits));
                if (a.kind == 'i') return static_cast<plain>(static_cast<long long>(bits << (64 - 8 * a.size)) >> (64 - 8 * a.size));
                return static_cast<plain>(bits);
            }
        }
        return *static_cast<const plain*>(a.data);
    }
};
template <class T>
struct pointee {
    static constexpr unsigned size = sizeof(T);
};
template <>
struct pointee<void> {
    static constexpr unsigned size = 0;
};
template <class T>
struct parameter<T*> {
    static constexpr dice_emu_param value{pointee<typename std::remove_cv<T>::type>::size, 'p'};
    static DICE_EMU_INLINE T* get(const dice_emu_arg& a) { return static_cast<T*>(a.data); }
};

// Of functions that share a name the one that returns nothing: the C library has a `random` too, which device code does not.
template <class... P>
constexpr auto kernel(void (*f)(P...)) {
    return f;
}

template <auto F, class Type>
struct call;
template <auto F, class R, class... P>
struct call<F, R (*)(P...)> {
    static constexpr unsigned arity = sizeof...(P);
    static constexpr dice_emu_param params[sizeof...(P) + 1] = {parameter<P>::value..., dice_emu_param{0, 0}};
    template <size_t... I>
    static DICE_EMU_INLINE void spread(const dice_emu_arg* a, std::index_sequence<I...>) {
        static_cast<void>(F(parameter<P>::get(a[I])...));
    }
    static void run(const dice_emu_arg* a) { spread(a, std::make_index_sequence<sizeof...(P)>()); }
};
template <auto F, class R, class... P>
struct call<F, R (*)(P...) noexcept> : call<static_cast<R (*)(P...)>(F), R (*)(P...)> {};

}  // namespace dice_emu

extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];
extern "C" __attribute__((visibility("hidden"), weak)) char __start_dice_device[], __stop_dice_device[];

// Stands once at the end of the text. The range of shared variables is empty for a reference function, whose .bss holds
// the C++ library's own state.
#define DICE_EMU_MODULE(shared_end, returns_early, ...)                                                                \
    DICE_EMU_REGISTER uint3 threadIdx, blockIdx;                                                                       \
    DICE_EMU_REGISTER dim3 blockDim, gridDim;                                                                          \
    extern "C" {                                                                                                       \
    DICE_EMU_REGISTER char* dice_emu_dynamic;                                                                          \
    DICE_EMU_REGISTER unsigned dice_emu_dynamic_bytes;                                                                 \
    }                                                                                                                  \
    using dice_emu_call = dice_emu::call<(__VA_ARGS__), decltype((__VA_ARGS__))>;                                      \
    extern "C" __attribute__((visibility("default"), used, section("dice_registers"))) dice_emu_module_info            \
        dice_emu_module;                                                                                               \
    dice_emu_module_info dice_emu_module = {                                                                           \
        dice_emu_version,                                                                                              \
        dice_emu_call::arity,                                                                                          \
        dice_emu_call::params,                                                                                         \
        dice_emu_call::run,                                                                                            \
        reinterpret_cast<dice_emu_uint3*>(&threadIdx),                                                                 \
        reinterpret_cast<dice_emu_uint3*>(&blockIdx),                                                                  \
        reinterpret_cast<dice_emu_uint3*>(&blockDim),                                                                  \
        reinterpret_cast<dice_emu_uint3*>(&gridDim),                                                                   \
        &dice_emu_dynamic,                                                                                             \
        &dice_emu_dynamic_bytes,                                                                                       \
        __bss_start,                                                                                                   \
        shared_end,                                                                                                    \
        __start_dice_device,                                                                                           \
        __stop_dice_device,                                                                                            \
        returns_early};

#endif
