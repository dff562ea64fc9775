"""What `cuda_runtime.h` and the C and C++ headers give to device code, and NVRTC does not have on its own.

NVRTC knows the language, the vector types, the mathematical functions and `printf`. It does not know sized integers,
the macros of `<float.h>`, `<limits.h>` and `<math.h>`, or anything of the standard library; libcu++ offers the latter
under `cuda::std`.
"""

import re
from collections.abc import Collection, Iterable, Sequence

CONSTEXPR = "dice_cexp"
"""Stands for `constexpr` of functions without an execution space; as long as that word, so that columns stay."""

_MACROS = """
INFINITY __int_as_float(0x7f800000)
NAN __int_as_float(0x7fffffff)
HUGE_VALF __int_as_float(0x7f800000)
HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)
FLT_MAX 3.402823466e+38f
FLT_MIN 1.175494351e-38f
FLT_EPSILON 1.192092896e-07f
FLT_TRUE_MIN 1.401298464e-45f
FLT_DIG 6
FLT_MANT_DIG 24
FLT_RADIX 2
DBL_MAX 1.7976931348623157e+308
DBL_MIN 2.2250738585072014e-308
DBL_EPSILON 2.2204460492503131e-016
DBL_DIG 15
DBL_MANT_DIG 53
CHAR_BIT 8
SCHAR_MIN (-128)
SCHAR_MAX 127
UCHAR_MAX 255
CHAR_MIN (-128)
CHAR_MAX 127
SHRT_MIN (-32768)
SHRT_MAX 32767
USHRT_MAX 65535
INT_MIN (-2147483647-1)
INT_MAX 2147483647
UINT_MAX 4294967295u
LONG_MIN (-9223372036854775807L-1L)
LONG_MAX 9223372036854775807L
ULONG_MAX 18446744073709551615UL
LLONG_MIN (-9223372036854775807LL-1LL)
LLONG_MAX 9223372036854775807LL
ULLONG_MAX 18446744073709551615ULL
INT8_MIN (-128)
INT8_MAX 127
UINT8_MAX 255
INT16_MIN (-32768)
INT16_MAX 32767
UINT16_MAX 65535
INT32_MIN (-2147483647-1)
INT32_MAX 2147483647
UINT32_MAX 4294967295u
INT64_MIN (-9223372036854775807LL-1LL)
INT64_MAX 9223372036854775807LL
UINT64_MAX 18446744073709551615ULL
SIZE_MAX 18446744073709551615UL
NULL 0
EXIT_SUCCESS 0
EXIT_FAILURE 1
RAND_MAX 2147483647
M_E 2.7182818284590452354
M_LOG2E 1.4426950408889634074
M_LOG10E 0.43429448190325182765
M_LN2 0.69314718055994530942
M_LN10 2.30258509299404568402
M_PI 3.14159265358979323846
M_PI_2 1.57079632679489661923
M_PI_4 0.78539816339744830962
M_1_PI 0.31830988618379067154
M_2_PI 0.63661977236758134308
M_2_SQRTPI 1.12837916709551257390
M_SQRT2 1.41421356237309504880
M_SQRT1_2 0.70710678118654752440
__linux__ 1
__unix__ 1
"""

# The sized types are those of cuda/std/cstdint, so that a text may see both.
_TYPES = """
using int8_t = signed char; using int16_t = signed short; using int32_t = signed int; using int64_t = signed long long;
using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned int;
using uint64_t = unsigned long long; using intptr_t = int64_t; using uintptr_t = uint64_t;
using int_fast8_t = int8_t; using int_fast16_t = int16_t; using int_fast32_t = int32_t; using int_fast64_t = int64_t;
using uint_fast8_t = uint8_t; using uint_fast16_t = uint16_t; using uint_fast32_t = uint32_t; using uint_fast64_t = uint64_t;
typedef unsigned int uint; typedef unsigned short ushort; typedef unsigned long ulong;
typedef unsigned long long CUtexObject; typedef unsigned long long CUsurfObject; typedef unsigned long long CUdeviceptr;
"""

_STD_GLOBALS = """
sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh pow fabs
floor ceil round rint nearbyint trunc fmod remainder hypot erf erfc tgamma lgamma ldexp frexp fmax fmin fma copysign isnan
isinf isfinite signbit abs min max sqrtf expf exp2f logf log2f log10f log1pf sinf cosf tanf asinf acosf atanf atan2f sinhf
coshf tanhf powf fabsf floorf ceilf roundf rintf truncf fmodf hypotf erff erfcf fmaxf fminf fmaf copysignf
int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t intptr_t uintptr_t size_t ptrdiff_t memcpy memset printf
"""

_STD_HEADERS = {
    "type_traits": """is_same is_same_v enable_if enable_if_t conditional conditional_t is_integral is_integral_v
        is_floating_point is_floating_point_v is_arithmetic is_arithmetic_v is_signed is_signed_v is_unsigned is_unsigned_v
        is_pointer is_pointer_v is_const is_const_v is_base_of is_base_of_v is_convertible is_convertible_v
        is_trivially_copyable is_trivially_copyable_v remove_cv remove_cv_t remove_const remove_const_t remove_reference
        remove_reference_t remove_pointer remove_pointer_t decay decay_t add_const add_const_t add_pointer add_pointer_t
        make_unsigned make_unsigned_t make_signed make_signed_t common_type common_type_t integral_constant bool_constant
        true_type false_type void_t is_void is_void_v is_enum is_enum_v underlying_type underlying_type_t is_class is_class_v
        is_invocable is_invocable_v invoke_result invoke_result_t alignment_of aligned_storage aligned_storage_t conjunction
        conjunction_v disjunction disjunction_v negation negation_v type_identity type_identity_t is_constant_evaluated""",
    "limits": "numeric_limits",
    "utility": """pair make_pair move forward swap exchange declval index_sequence make_index_sequence integer_sequence
        make_integer_sequence index_sequence_for as_const""",
    "array": "array",
    "tuple": "tuple make_tuple tie get tuple_size tuple_element forward_as_tuple apply",
    "complex": "complex",
    "optional": "optional nullopt",
    "span": "span",
    "bit": "bit_cast popcount countl_zero countr_zero has_single_bit bit_ceil bit_floor bit_width rotl rotr",
    "functional": """plus minus multiplies divides modulus negate less greater less_equal greater_equal equal_to
        not_equal_to logical_and logical_or bit_and bit_or bit_xor invoke""",
    "initializer_list": "initializer_list",
    "algorithm": "clamp",
    "cstddef": "byte",
}
_HEADER_OF = {name: f"cuda/std/{header}" for header, names in _STD_HEADERS.items() for name in names.split()}
# Names that are hardly ever anything else, so that `using namespace std` may stand behind them.
_UNQUALIFIED = frozenset(
    """numeric_limits is_same is_same_v enable_if enable_if_t conditional conditional_t integral_constant true_type
    false_type index_sequence make_index_sequence is_floating_point is_integral""".split()
)

# Libraries' headers include these; when the library's own is left out, its device types must come from somewhere.
_BROUGHT_BY = re.compile(r"cublas|cudnn|cusparse|cusolver|cufft|curand|torch/|ATen/|c10/|nccl")
_BROUGHT = {
    "cuda_fp16.h": frozenset({"half", "half2", "__half", "__half2", "nv_half"}),
    "cuda_bf16.h": frozenset({"__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16", "nv_bfloat162"}),
    "cuda_fp8.h": frozenset({"__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp8x4_e4m3", "__nv_fp8_storage_t"}),
    "cuComplex.h": frozenset({"cuComplex", "cuFloatComplex", "cuDoubleComplex", "cufftComplex", "cufftDoubleComplex"}),
}
_CUFFT = """
typedef float cufftReal; typedef double cufftDoubleReal; typedef cuComplex cufftComplex; typedef cuDoubleComplex cufftDoubleComplex;
"""


def standard_headers(qualified: Iterable[str], names: Collection[str], using_std: bool) -> frozenset[str]:
    """Headers of libcu++ for what a text uses of namespace std.

    `qualified` are the names written behind `std::`, `names` all of its names, `using_std` whether it says
    `using namespace std`.
    """
    wanted = set(qualified)
    if using_std:
        wanted |= _UNQUALIFIED.intersection(names)
    return frozenset(_HEADER_OF[name] for name in wanted if name in _HEADER_OF)


def library_headers(dropped: Iterable[str], names: Collection[str]) -> frozenset[str]:
    """Headers of device types that come with a library's header that was left out."""
    if not any(_BROUGHT_BY.match(header) for header in dropped):
        return frozenset()
    return frozenset(header for header, brought in _BROUGHT.items() if not brought.isdisjoint(names))


def prelude_text(
    standard: Sequence[str], names: Collection[str], using_std: bool, namespaces: Iterable[str], library: Iterable[str]
) -> str:
    """The text of a header that is included before the user's code.

    `standard` are the headers of libcu++ included before it, `library` those that it shall include, `namespaces` the
    targets of using directives.
    """
    lines = ["#pragma once"]
    for line in _MACROS.strip().splitlines():
        name, _, value = line.partition(" ")
        lines.append(f"#ifndef {name}\n#define {name} {value}\n#endif")
    lines.append(_TYPES)
    lines.append(f"#define {CONSTEXPR} constexpr __host__ __device__")
    lines += [f"#include <{header}>" for header in library]
    if "cuComplex.h" in library:
        lines.append(_CUFFT)
    lines.append(f"namespace std {{ {' '.join(f'using ::{name};' for name in _STD_GLOBALS.split())} }}")
    if standard:
        lines.append("namespace std { using namespace cuda::std; }")
        if using_std:
            used = sorted(name for name in _UNQUALIFIED.intersection(names) if _HEADER_OF[name] in standard)
            lines += [f"using cuda::std::{name};" for name in used]
    # The header that opens a namespace may have been left out; an empty namespace does no harm then.
    lines += [f"namespace {name} {{}}" for name in namespaces if re.fullmatch(r"\w+", name) and name != "std"]
    return "\n".join(lines) + "\n"
