// CUDA's complex numbers.
#ifndef DICE_EMU_CUCOMPLEX_H
#define DICE_EMU_CUCOMPLEX_H
#define DICE_EMU_COMPLEX(C, V, T, f)                                                                                   \
    using C = V;                                                                                                       \
    DICE_EMU_INLINE T cuCreal##f(C a) { return a.x; }                                                                  \
    DICE_EMU_INLINE T cuCimag##f(C a) { return a.y; }                                                                  \
    DICE_EMU_INLINE C make_##C(T x, T y) { return C{x, y}; }                                                           \
    DICE_EMU_INLINE C cuConj##f(C a) { return C{a.x, -a.y}; }                                                          \
    DICE_EMU_INLINE C cuCadd##f(C a, C b) { return C{a.x + b.x, a.y + b.y}; }                                          \
    DICE_EMU_INLINE C cuCsub##f(C a, C b) { return C{a.x - b.x, a.y - b.y}; }                                          \
    DICE_EMU_INLINE C cuCmul##f(C a, C b) { return C{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }                  \
    DICE_EMU_INLINE C cuCdiv##f(C a, C b) {                                                                            \
        T d = b.x * b.x + b.y * b.y;                                                                                   \
        return C{(a.x * b.x + a.y * b.y) / d, (a.y * b.x - a.x * b.y) / d};                                            \
    }                                                                                                                  \
    DICE_EMU_INLINE T cuCabs##f(C a) { return hypot##f(a.x, a.y); }
DICE_EMU_COMPLEX(cuFloatComplex, float2, float, f)
DICE_EMU_COMPLEX(cuDoubleComplex, double2, double, )
using cuComplex = cuFloatComplex;
DICE_EMU_INLINE cuComplex make_cuComplex(float x, float y) { return cuComplex{x, y}; }
DICE_EMU_INLINE cuFloatComplex cuCfmaf(cuFloatComplex a, cuFloatComplex b, cuFloatComplex c) { return cuCaddf(cuCmulf(a, b), c); }
DICE_EMU_INLINE cuDoubleComplex cuCfma(cuDoubleComplex a, cuDoubleComplex b, cuDoubleComplex c) { return cuCadd(cuCmul(a, b), c); }
#endif
