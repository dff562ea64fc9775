// Computes in double what was written for float: included last, before the user's text.
#ifndef DICE_EMU_DOUBLE_H
#define DICE_EMU_DOUBLE_H
#define float double
#define sqrtf sqrt
#define rsqrtf rsqrt
#define cbrtf cbrt
#define rcbrtf rcbrt
#define expf exp
#define exp2f exp2
#define exp10f exp10
#define expm1f expm1
#define logf log
#define log2f log2
#define log10f log10
#define log1pf log1p
#define powf pow
#define sinf sin
#define cosf cos
#define tanf tan
#define asinf asin
#define acosf acos
#define atanf atan
#define atan2f atan2
#define sinhf sinh
#define coshf cosh
#define tanhf tanh
#define asinhf asinh
#define acoshf acosh
#define atanhf atanh
#define sinpif sinpi
#define cospif cospi
#define sincosf sincos
#define erff erf
#define erfcf erfc
#define erfcxf erfcx
#define normcdff normcdf
#define tgammaf tgamma
#define lgammaf lgamma
#define hypotf hypot
#define rhypotf rhypot
#define fmaf fma
#define fmaxf fmax
#define fminf fmin
#define fabsf fabs
#define fmodf fmod
#define fdimf fdim
#define remainderf remainder
#define floorf floor
#define ceilf ceil
#define roundf round
#define rintf rint
#define nearbyintf nearbyint
#define truncf trunc
#define lroundf lround
#define copysignf copysign
#define ldexpf ldexp
#define frexpf frexp
#define __expf exp
#define __exp10f exp10
#define __logf log
#define __log2f log2
#define __log10f log10
#define __powf pow
#define __sinf sin
#define __cosf cos
#define __tanf tan
#define __sincosf sincos
#define __frsqrt_rn rsqrt
#define __fsqrt_rn sqrt
#define __fmaf_rn fma
#define __fadd_rn(a, b) (double(a) + double(b))
#define __fsub_rn(a, b) (double(a) - double(b))
#define __fmul_rn(a, b) (double(a) * double(b))
#define __fdiv_rn(a, b) (double(a) / double(b))
#define __frcp_rn(a) (1.0 / double(a))
#define __fdividef(a, b) (double(a) / double(b))
#define fdividef(a, b) (double(a) / double(b))
#define __saturatef(x) fmin(1.0, fmax(0.0, double(x)))
#endif
