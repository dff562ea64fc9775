// half and half2 in software.
#ifndef DICE_EMU_CUDA_FP16_H
#define DICE_EMU_CUDA_FP16_H
#include "narrow_float.h"

DICE_EMU_NARROW_TYPE(__half, __half_raw, half_bits, half_value)
DICE_EMU_NARROW_FUNCTIONS(__half, __half2)
using half = __half;
using half2 = __half2;

DICE_EMU_INLINE float __half2float(__half a) { return a; }
DICE_EMU_INLINE __half __float2half(float a) { return __half(a); }
DICE_EMU_INLINE __half __float2half_rn(float a) { return __half(a); }
DICE_EMU_INLINE __half __float2half_rz(float a) {
    __half r(a);
    if (fabsf(r) > fabsf(a)) --r.__x;
    return r;
}
DICE_EMU_INLINE __half __double2half(double a) { return __half(a); }
DICE_EMU_INLINE __half __int2half_rn(int a) { return __half(a); }
DICE_EMU_INLINE __half __uint2half_rn(unsigned a) { return __half(a); }
DICE_EMU_INLINE int __half2int_rn(__half a) { return __float2int_rn(a); }
DICE_EMU_INLINE int __half2int_rz(__half a) { return __float2int_rz(a); }
DICE_EMU_INLINE unsigned __half2uint_rn(__half a) { return __float2uint_rn(a); }
DICE_EMU_INLINE unsigned short __half_as_ushort(__half a) { return a.__x; }
DICE_EMU_INLINE short __half_as_short(__half a) { return static_cast<short>(a.__x); }
DICE_EMU_INLINE __half __ushort_as_half(unsigned short a) { return __half(__half_raw{a}); }
DICE_EMU_INLINE __half __short_as_half(short a) { return __half(__half_raw{static_cast<unsigned short>(a)}); }
DICE_EMU_INLINE __half2 make_half2(__half a, __half b) { return __half2(a, b); }
DICE_EMU_INLINE __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
DICE_EMU_INLINE __half2 __half2half2(__half a) { return __half2(a, a); }
DICE_EMU_INLINE __half2 __float2half2_rn(float a) { return __half2(__half(a), __half(a)); }
DICE_EMU_INLINE __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
DICE_EMU_INLINE __half2 __float22half2_rn(float2 a) { return __half2(__half(a.x), __half(a.y)); }
DICE_EMU_INLINE float2 __half22float2(__half2 a) { return float2{a.x, a.y}; }
DICE_EMU_INLINE float __low2float(__half2 a) { return a.x; }
DICE_EMU_INLINE float __high2float(__half2 a) { return a.y; }
DICE_EMU_INLINE __half __low2half(__half2 a) { return a.x; }
DICE_EMU_INLINE __half __high2half(__half2 a) { return a.y; }
DICE_EMU_INLINE __half2 __low2half2(__half2 a) { return __half2(a.x, a.x); }
DICE_EMU_INLINE __half2 __high2half2(__half2 a) { return __half2(a.y, a.y); }
DICE_EMU_INLINE __half2 __lowhigh2highlow(__half2 a) { return __half2(a.y, a.x); }
#endif
