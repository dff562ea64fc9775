// bfloat16 in software.
#ifndef DICE_EMU_CUDA_BF16_H
#define DICE_EMU_CUDA_BF16_H
#include "narrow_float.h"

DICE_EMU_NARROW_TYPE(__nv_bfloat16, __nv_bfloat16_raw, bfloat_bits, bfloat_value)
DICE_EMU_NARROW_FUNCTIONS(__nv_bfloat16, __nv_bfloat162)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

DICE_EMU_INLINE float __bfloat162float(__nv_bfloat16 a) { return a; }
DICE_EMU_INLINE __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
DICE_EMU_INLINE __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
DICE_EMU_INLINE __nv_bfloat16 __double2bfloat16(double a) { return __nv_bfloat16(a); }
DICE_EMU_INLINE __nv_bfloat16 __int2bfloat16_rn(int a) { return __nv_bfloat16(a); }
DICE_EMU_INLINE int __bfloat162int_rn(__nv_bfloat16 a) { return __float2int_rn(a); }
DICE_EMU_INLINE int __bfloat162int_rz(__nv_bfloat16 a) { return __float2int_rz(a); }
DICE_EMU_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.__x; }
DICE_EMU_INLINE short __bfloat16_as_short(__nv_bfloat16 a) { return static_cast<short>(a.__x); }
DICE_EMU_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16(__nv_bfloat16_raw{a}); }
DICE_EMU_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
DICE_EMU_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
DICE_EMU_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
DICE_EMU_INLINE __nv_bfloat162 __float2bfloat162_rn(float a) { return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(a)); }
DICE_EMU_INLINE __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b)); }
DICE_EMU_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 a) { return __nv_bfloat162(__nv_bfloat16(a.x), __nv_bfloat16(a.y)); }
DICE_EMU_INLINE float2 __bfloat1622float2(__nv_bfloat162 a) { return float2{a.x, a.y}; }
DICE_EMU_INLINE float __low2float(__nv_bfloat162 a) { return a.x; }
DICE_EMU_INLINE float __high2float(__nv_bfloat162 a) { return a.y; }
DICE_EMU_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
DICE_EMU_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
#endif
