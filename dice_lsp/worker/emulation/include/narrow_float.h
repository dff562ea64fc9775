// What half and bfloat16 share: operators and functions that compute in float and round once. The products, sums and
// quotients of two 11-bit (or 8-bit) significands are exact enough in float for the second rounding to change nothing.
#ifndef DICE_EMU_NARROW_FLOAT_H
#define DICE_EMU_NARROW_FLOAT_H

namespace dice_emu {

DICE_EMU_INLINE unsigned short half_bits(float value) {
    unsigned f = bits_of(value), sign = f >> 16 & 0x8000u;
    f &= 0x7fffffffu;
    if (f > 0x7f800000u) return 0x7fffu;
    if (f >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);  // rounds to infinity, ties included
    if (f < 0x38800000u) {
        // Subnormal: adding 0.5 lines the significand up, and the processor rounds to nearest even.
        float shifted = from_bits<float>(f) + 0.5f;
        return static_cast<unsigned short>(sign | (static_cast<unsigned>(bits_of(shifted)) - 0x3f000000u));
    }
    f += 0xc8000fffu + (f >> 13 & 1);
    return static_cast<unsigned short>(sign | f >> 13);
}
DICE_EMU_INLINE float half_value(unsigned short h) {
    unsigned sign = static_cast<unsigned>(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) return from_bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) {
        float tiny = static_cast<float>(rest) * 5.9604644775390625e-8f;
        return sign ? -tiny : tiny;
    }
    return from_bits<float>(sign | ((rest << 13) + 0x38000000u));
}
DICE_EMU_INLINE unsigned short bfloat_bits(float value) {
    unsigned f = bits_of(value);
    if ((f & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return static_cast<unsigned short>((f + 0x7fffu + (f >> 16 & 1)) >> 16);
}
DICE_EMU_INLINE float bfloat_value(unsigned short b) { return from_bits<float>(static_cast<unsigned long long>(b) << 16); }

// A value of twice the precision, rounded once to float to odd, so that the narrow rounding afterwards is right.
DICE_EMU_INLINE float to_odd(double exact) {
    float r = static_cast<float>(exact);
    if (static_cast<double>(r) == exact || exact != exact || r - r != 0) return r;
    unsigned b = bits_of(r);
    if (b & 1) return r;
    bool away = fabs(static_cast<double>(r)) < fabs(exact);
    return from_bits<float>(away ? b + 1 : b - 1);
}

}  // namespace dice_emu

#define DICE_EMU_NARROW_TYPE(T, RAW, to_bits, to_value)                                                                \
    struct __attribute__((aligned(2))) RAW {                                                                           \
        unsigned short x;                                                                                              \
    };                                                                                                                 \
    struct __attribute__((aligned(2))) T {                                                                             \
        unsigned short __x;                                                                                            \
        T() = default;                                                                                                 \
        DICE_EMU_INLINE T(RAW r) : __x(r.x) {}                                                                         \
        template <class N, class = dice_emu::number<N>>                                                                \
        DICE_EMU_INLINE T(N v) : __x(dice_emu::to_bits(std::is_same<N, float>::value ? static_cast<float>(v) : dice_emu::to_odd(static_cast<double>(v)))) {} \
        DICE_EMU_INLINE operator float() const { return dice_emu::to_value(__x); }                                     \
        DICE_EMU_INLINE operator RAW() const { return RAW{__x}; }                                                      \
        template <class N, class = dice_emu::number<N>>                                                                \
        DICE_EMU_INLINE T& operator=(N v) { return *this = T(v); }                                                     \
    };                                                                                                                 \
    DICE_EMU_INLINE T operator+(T a, T b) { return T(float(a) + float(b)); }                                           \
    DICE_EMU_INLINE T operator-(T a, T b) { return T(float(a) - float(b)); }                                           \
    DICE_EMU_INLINE T operator*(T a, T b) { return T(float(a) * float(b)); }                                           \
    DICE_EMU_INLINE T operator/(T a, T b) { return T(float(a) / float(b)); }                                           \
    DICE_EMU_INLINE T& operator+=(T& a, T b) { return a = a + b; }                                                     \
    DICE_EMU_INLINE T& operator-=(T& a, T b) { return a = a - b; }                                                     \
    DICE_EMU_INLINE T& operator*=(T& a, T b) { return a = a * b; }                                                     \
    DICE_EMU_INLINE T& operator/=(T& a, T b) { return a = a / b; }                                                     \
    DICE_EMU_INLINE T& operator++(T& a) { return a = a + T(1.0f); }                                                    \
    DICE_EMU_INLINE T& operator--(T& a) { return a = a - T(1.0f); }                                                    \
    DICE_EMU_INLINE T operator+(T a) { return a; }                                                                     \
    DICE_EMU_INLINE T operator-(T a) { a.__x ^= 0x8000; return a; }                                                    \
    DICE_EMU_INLINE bool operator==(T a, T b) { return float(a) == float(b); }                                         \
    DICE_EMU_INLINE bool operator!=(T a, T b) { return float(a) != float(b); }                                         \
    DICE_EMU_INLINE bool operator<(T a, T b) { return float(a) < float(b); }                                           \
    DICE_EMU_INLINE bool operator>(T a, T b) { return float(a) > float(b); }                                           \
    DICE_EMU_INLINE bool operator<=(T a, T b) { return float(a) <= float(b); }                                         \
    DICE_EMU_INLINE bool operator>=(T a, T b) { return float(a) >= float(b); }

#define DICE_EMU_NARROW_FUNCTIONS(T, T2)                                                                               \
    struct __attribute__((aligned(4))) T2 {                                                                            \
        T x, y;                                                                                                        \
        T2() = default;                                                                                                \
        DICE_EMU_INLINE T2(T a, T b) : x(a), y(b) {}                                                                   \
    };                                                                                                                 \
    DICE_EMU_INLINE T __hadd(T a, T b) { return a + b; }                                                               \
    DICE_EMU_INLINE T __hsub(T a, T b) { return a - b; }                                                               \
    DICE_EMU_INLINE T __hmul(T a, T b) { return a * b; }                                                               \
    DICE_EMU_INLINE T __hdiv(T a, T b) { return a / b; }                                                               \
    DICE_EMU_INLINE T __hadd_rn(T a, T b) { return a + b; }                                                            \
    DICE_EMU_INLINE T __hsub_rn(T a, T b) { return a - b; }                                                            \
    DICE_EMU_INLINE T __hmul_rn(T a, T b) { return a * b; }                                                            \
    DICE_EMU_INLINE T __hfma(T a, T b, T c) { return T(dice_emu::to_odd(static_cast<double>(float(a)) * float(b) + float(c))); } \
    DICE_EMU_INLINE T __hadd_sat(T a, T b) { return T(__saturatef(a + b)); }                                           \
    DICE_EMU_INLINE T __hsub_sat(T a, T b) { return T(__saturatef(a - b)); }                                           \
    DICE_EMU_INLINE T __hmul_sat(T a, T b) { return T(__saturatef(a * b)); }                                           \
    DICE_EMU_INLINE T __hfma_sat(T a, T b, T c) { return T(__saturatef(__hfma(a, b, c))); }                            \
    DICE_EMU_INLINE T __hfma_relu(T a, T b, T c) { return T(fmaxf(__hfma(a, b, c), 0.0f)); }                           \
    DICE_EMU_INLINE T __hneg(T a) { return -a; }                                                                       \
    DICE_EMU_INLINE T __habs(T a) { a.__x &= 0x7fff; return a; }                                                       \
    DICE_EMU_INLINE bool __heq(T a, T b) { return a == b; }                                                            \
    DICE_EMU_INLINE bool __hne(T a, T b) { return float(a) < float(b) || float(a) > float(b); }                        \
    DICE_EMU_INLINE bool __hlt(T a, T b) { return a < b; }                                                             \
    DICE_EMU_INLINE bool __hle(T a, T b) { return a <= b; }                                                            \
    DICE_EMU_INLINE bool __hgt(T a, T b) { return a > b; }                                                             \
    DICE_EMU_INLINE bool __hge(T a, T b) { return a >= b; }                                                            \
    DICE_EMU_INLINE bool __hisnan(T a) { return float(a) != float(a); }                                                \
    DICE_EMU_INLINE int __hisinf(T a) { return isinf(float(a)) ? (float(a) < 0 ? -1 : 1) : 0; }                        \
    DICE_EMU_INLINE T __hmax(T a, T b) { return T(fmaxf(a, b)); }                                                      \
    DICE_EMU_INLINE T __hmin(T a, T b) { return T(fminf(a, b)); }                                                      \
    DICE_EMU_INLINE T __hmax_nan(T a, T b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b); }                \
    DICE_EMU_INLINE T __hmin_nan(T a, T b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b); }                \
    DICE_EMU_INLINE T hexp(T a) { return T(dice_emu::to_odd(exp(static_cast<double>(float(a))))); }                    \
    DICE_EMU_INLINE T hexp2(T a) { return T(dice_emu::to_odd(exp2(static_cast<double>(float(a))))); }                  \
    DICE_EMU_INLINE T hexp10(T a) { return T(dice_emu::to_odd(pow(10.0, static_cast<double>(float(a))))); }            \
    DICE_EMU_INLINE T hlog(T a) { return T(dice_emu::to_odd(log(static_cast<double>(float(a))))); }                    \
    DICE_EMU_INLINE T hlog2(T a) { return T(dice_emu::to_odd(log2(static_cast<double>(float(a))))); }                  \
    DICE_EMU_INLINE T hlog10(T a) { return T(dice_emu::to_odd(log10(static_cast<double>(float(a))))); }                \
    DICE_EMU_INLINE T hsin(T a) { return T(dice_emu::to_odd(sin(static_cast<double>(float(a))))); }                    \
    DICE_EMU_INLINE T hcos(T a) { return T(dice_emu::to_odd(cos(static_cast<double>(float(a))))); }                    \
    DICE_EMU_INLINE T htanh(T a) { return T(dice_emu::to_odd(tanh(static_cast<double>(float(a))))); }                  \
    DICE_EMU_INLINE T hsqrt(T a) { return T(dice_emu::to_odd(sqrt(static_cast<double>(float(a))))); }                  \
    DICE_EMU_INLINE T hrsqrt(T a) { return T(dice_emu::to_odd(1.0 / sqrt(static_cast<double>(float(a))))); }           \
    DICE_EMU_INLINE T hrcp(T a) { return T(dice_emu::to_odd(1.0 / static_cast<double>(float(a)))); }                   \
    DICE_EMU_INLINE T hfloor(T a) { return T(floorf(a)); }                                                             \
    DICE_EMU_INLINE T hceil(T a) { return T(ceilf(a)); }                                                               \
    DICE_EMU_INLINE T htrunc(T a) { return T(truncf(a)); }                                                             \
    DICE_EMU_INLINE T hrint(T a) { return T(rintf(a)); }                                                               \
    DICE_EMU_INLINE T2 operator+(T2 a, T2 b) { return T2(a.x + b.x, a.y + b.y); }                                      \
    DICE_EMU_INLINE T2 operator-(T2 a, T2 b) { return T2(a.x - b.x, a.y - b.y); }                                      \
    DICE_EMU_INLINE T2 operator*(T2 a, T2 b) { return T2(a.x * b.x, a.y * b.y); }                                      \
    DICE_EMU_INLINE T2 operator/(T2 a, T2 b) { return T2(a.x / b.x, a.y / b.y); }                                      \
    DICE_EMU_INLINE T2 operator-(T2 a) { return T2(-a.x, -a.y); }                                                      \
    DICE_EMU_INLINE T2& operator+=(T2& a, T2 b) { return a = a + b; }                                                  \
    DICE_EMU_INLINE T2& operator-=(T2& a, T2 b) { return a = a - b; }                                                  \
    DICE_EMU_INLINE T2& operator*=(T2& a, T2 b) { return a = a * b; }                                                  \
    DICE_EMU_INLINE T2 __hadd2(T2 a, T2 b) { return a + b; }                                                           \
    DICE_EMU_INLINE T2 __hsub2(T2 a, T2 b) { return a - b; }                                                           \
    DICE_EMU_INLINE T2 __hmul2(T2 a, T2 b) { return a * b; }                                                           \
    DICE_EMU_INLINE T2 __h2div(T2 a, T2 b) { return a / b; }                                                           \
    DICE_EMU_INLINE T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }          \
    DICE_EMU_INLINE T2 __hneg2(T2 a) { return -a; }                                                                    \
    DICE_EMU_INLINE T2 __habs2(T2 a) { return T2(__habs(a.x), __habs(a.y)); }                                          \
    DICE_EMU_INLINE T2 __hmax2(T2 a, T2 b) { return T2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }                          \
    DICE_EMU_INLINE T2 __hmin2(T2 a, T2 b) { return T2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }                          \
    DICE_EMU_INLINE T2 h2exp(T2 a) { return T2(hexp(a.x), hexp(a.y)); }                                                \
    DICE_EMU_INLINE T2 h2log(T2 a) { return T2(hlog(a.x), hlog(a.y)); }                                                \
    DICE_EMU_INLINE T2 h2sqrt(T2 a) { return T2(hsqrt(a.x), hsqrt(a.y)); }                                             \
    DICE_EMU_INLINE T2 h2rsqrt(T2 a) { return T2(hrsqrt(a.x), hrsqrt(a.y)); }                                          \
    DICE_EMU_INLINE T2 h2rcp(T2 a) { return T2(hrcp(a.x), hrcp(a.y)); }

#endif
