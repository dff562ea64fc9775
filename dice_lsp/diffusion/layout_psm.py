"""Prefix-suffix-middle layout of the shipped checkpoint: a fill request as tokens, and tokens as text for its place.

A small model should spend its capacity on what a kernel does, not on how somebody spells it. So it never sees the
document as written but a canonical form, from which the written form is made again when a fill comes back:

- one word per C token, no line breaks and no indentation; comments reduced to what they say about the formula;
- rare identifiers and literals become one of a few placeholder words (`V7`, `K3f`), the same word at every place of one
  request, so that copying a name is one token whatever its spelling;
- the CPU reference stands first, reduced to its body, its parameters renamed to the kernel's;
- of a directive only buffers, launch and the torch expression remain; without one, the launch site's grid and block.

The prompt is `<pre> declarations reference directive comments kernel-head-to-region <suf> rest-of-kernel <mid>`; the
reply is the middle and `<eom>`. Training composes its examples with the same functions, so both always agree.
"""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import evolve, field, frozen

from dice_lsp.diffusion.torch_loops import as_loops
from dice_lsp.records import FillRequest

PRE, SUF, MID, EOM, MASK, PAD = "<pre>", "<suf>", "<mid>", "<eom>", "<mask>", "<pad>"
SPECIALS = (PRE, SUF, MID, EOM, MASK, PAD)

NAME_PLACEHOLDERS = 40
NUMBER_PLACEHOLDERS = 16
LINE_LIMIT = 110

_TYPES = """void bool char short int long float double unsigned signed size_t ptrdiff_t int8_t uint8_t int16_t uint16_t
int32_t uint32_t int64_t uint64_t float2 float3 float4 double2 int2 int3 int4 uint2 uint4 uchar uchar3 uchar4 uint half
__half __half2 __nv_bfloat16 dim3 T auto""".split()

_LONG_LONG = "long_long"
"""`long long` as one word."""

_KEYWORDS = """if else for while do return break continue switch case default const struct template typename sizeof true
false volatile constexpr goto __global__ __device__ __shared__ __forceinline__ __noinline__ extern static inline
reinterpret_cast using namespace enum union""".split()

_BUILTINS = """threadIdx blockIdx blockDim gridDim warpSize x y z w __syncthreads __syncwarp __shfl_down_sync
__shfl_xor_sync __shfl_up_sync __shfl_sync __ballot_sync __any_sync __all_sync __popc __clz __ffs __brev __ldg
__threadfence atomicAdd atomicMax atomicMin atomicCAS atomicExch atomicOr atomicAnd atomicSub atomicXor
__float2half __half2float __float2int_rn __int2float_rn make_float2 make_float3 make_float4 FLT_MAX FLT_MIN
FLT_EPSILON DBL_MAX INT_MAX INT_MIN UINT_MAX INFINITY NAN M_PI #pragma unroll""".split()

_MATH = """exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt tanh sinh cosh sin cos tan asin acos atan atan2 pow
floor ceil round trunc rint nearbyint fabs fmax fmin fmod fma erf erfc hypot copysign fdim lrint lround""".split()
_MATH += (
    [name + "f" for name in _MATH]
    + """abs min max clamp isnan isinf __expf __logf __fdividef __sinf __cosf
__powf __fmaf_rn __frcp_rn __fsqrt_rn swap""".split()
)

_TORCH = """torch dim keepdim True False mean amax amin prod argmin argmax where maximum minimum relu sigmoid softmax
square neg reciprocal sign mul add sub div mm bmm matmul t transpose flip roll unsqueeze view reshape numel shape
frac float32 floor_divide remainder bitwise_and bitwise_or bitwise_xor""".split()

_LAYOUT = ["ref", "//dice", "//", "torch", "launch", "cdiv", "in", "out", "io", "tmp", "kernel", "\n"]

_NAMES = """a b c d e f g h i j k l m n o p q r s t u v A B C D E F G H I J K L M N P Q R S U X Y Z W
i0 i1 j0 j1 k0 k1 x0 x1 x2 y0 y1 a0 a1 b0 b1 t0 t1 n0 n1 p0 p1 s0 s1 s2 r0 r1 v0 v1 v2 w0 w1 w2 u0 u1 c0 c1 acc0 acc1
ii jj kk xs ys zs as bs dx dy dz nx ny nz lo hi bx by tx ty bid tid gid lane wid warp idx id ix iy iz jx jy
index row col rows cols width height depth batch channels channel stride offset start end begin size len length count num
step total acc sum res result val value tmp0 temp buf cache smem shared sdata partial tile As Bs best cur prev next left
right up down center mean var scale bias alpha beta gamma eps lambda weight weights input output src dst data idata odata
xi yi zi ai bi ci xv yv av bv base pos key mask flag bin bins hist max_val min_val row_max row_sum m0 m1 sum0 sum1 inv
norm diff dist denom numer factor ratio thr threshold low high limit bound iter iters it max_iter steps numElements
n_rows n_cols num_rows num_cols numRows numCols N_ROWS dim0 dim1 dims inp outp img image pixel vec mat lhs rhs ptr nnz
radius half_width win window block BLOCK TILE TILE_SIZE BLOCK_SIZE THREADS WIDTH HEIGHT BINS NBINS EPS""".split()

_TOPICS = """vector saxpy axpy relu sigmoid scale bias rowsum softmax stencil dot product matmul gemm histogram transpose
copy fill blend combine filter update apply step fused element elementwise wise map reduce reduction block warp naive
tiled shared row rows column columns matrix sum max min mean normalize vecadd vadd add mul sub div multiply axpby scal
bin count smooth average blur""".split()

_VOCABULARY = frozenset(_TYPES + _KEYWORDS + _BUILTINS + _MATH + _TORCH + _LAYOUT + _NAMES + _TOPICS)

_UNLEARNED = frozenset(
    """bool short long signed ptrdiff_t int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t float2 float3 float4
    double2 int2 int3 int4 uint2 uint4 uchar uchar3 uchar4 uint __half __half2 __nv_bfloat16 auto
    true false FLT_MIN FLT_EPSILON INT_MAX INT_MIN UINT_MAX NAN M_PI __popc __clz __ffs __brev __ldg __threadfence warpSize
    atomicMax atomicMin atomicCAS atomicExch atomicOr atomicAnd atomicSub atomicXor __float2half __half2float __float2int_rn
    __int2float_rn make_float2 make_float3 make_float4 exp10 exp10f cosh coshf tan tanf asin asinf acos acosf nearbyint
    nearbyintf erfc erfcf lrint lrintf lround lroundf isnan isinf __expf __logf __fdividef __sinf __cosf __powf __fmaf_rn
    __frcp_rn __fsqrt_rn swap
    BINS J m0 NBINS key u1 i0 ys var n0 dim1 pixel start zi y1 jy bins H right ai a1 steps acc1 nx numRows sum1 low iz denom x1
    limit weights row_sum odata b1 mask min_val depth max_iter numer nnz dims S row_max height k1 bi mat D value c0 m1 by tmp0
    bx xs sum0 iter s2 w2 hist flag norm iters base center r1 zs s0 ptr ci w1 s1 j1 acc0 pos num_rows next threshold w0
    TILE_SIZE BLOCK_SIZE window WIDTH prev hi E bs x2 U stride begin dist u0 n1 v2 gamma end radius G wid lambda lo HEIGHT dz
    image i1 channels win I dim0 L Z down jx bin r0 channel F inv k0 R ny THREADS high temp half_width eps num_cols as ty j0 x0
    numCols max_val ratio bound nz N_ROWS img thr num o batch factor W left vec partial outp Q up""".split()
) - frozenset(_TOPICS)
"""Words of the vocabulary that training hardly met: a placeholder is copied more surely than these."""

KNOWN = _VOCABULARY - _UNLEARNED
_TOPIC_WORDS = frozenset(_TOPICS)
_RESERVED = frozenset([*_TYPES, _LONG_LONG, *_KEYWORDS, *_MATH]) | (frozenset(_BUILTINS) - frozenset("xyzw"))
"""Words that are never a variable of a kernel."""

_SMALL = [str(value) for value in (*range(13), 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024)]
_FLOATS = ["0.0", "1.0", "2.0", "0.5", "3.0", "4.0", "0.25", "0.1", "10.0"]
_NUMBERS = frozenset(
    _SMALL
    + [f"{value}u" for value in (*range(9), 16, 31, 32, 255)]
    + [value + suffix for value in _FLOATS for suffix in ("", "f")]
    + ["0xffffffff", "0xffffffffu", "0xff", "0xffu"]
)
KNOWN_NUMBERS = _NUMBERS - frozenset("511 1023 127 63 6u 8u 31u 32u 255u 0xffffffffu 0xff 0xffu".split())

_OPERATORS = """<<< >>> <<= >>= ... -> ++ -- << >> <= >= == != && || += -= *= /= %= &= |= ^= :: { } ( ) [ ] ; , < > = + -
* / % & | ^ ~ ! ? : . #""".split()

_LEXER = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<directive>^[ \t]*\#(?:[^\n\\]|\\\n|\\)*)"
    r"|(?P<text>\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])+')"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[uUlLfF]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>" + "|".join(re.escape(operator) for operator in _OPERATORS) + r")",
    re.MULTILINE | re.DOTALL,
)
_PLACEHOLDER_NAME = re.compile(r"V\d+\Z")
_PLACEHOLDER_NUMBER = re.compile(r"K(\d+)(f|u|)\Z")


def vocabulary() -> list[str]:
    """Every word that must be one token of the tokenizer, in a fixed order."""
    words = sorted(_VOCABULARY | _NUMBERS | set(_OPERATORS))
    words += [f"V{index}" for index in range(NAME_PLACEHOLDERS)]
    words += [f"K{index}{suffix}" for index in range(NUMBER_PLACEHOLDERS) for suffix in ("", "f", "u")]
    return words


def lex(text: str) -> list[tuple[str, str]]:
    """`(kind, spelling)` of each C token of `text`; white space and unknown characters vanish. Never raises."""
    return [(match.lastgroup or "", match.group()) for match in _LEXER.finditer(text)]


def _number(spelling: str) -> str:
    """One spelling for each value: `1.F` -> `1.0f`, `.50` -> `0.5`, `0XFFU` -> `0xffu`."""
    lowered = spelling.lower()
    if lowered.startswith("0x"):
        return lowered.replace("l", "")
    value = lowered.rstrip("ful")
    suffix = lowered[len(value) :].replace("l", "")
    if "e" in value:
        return value + suffix
    if "." in value:
        whole, _, part = value.partition(".")
        value = f"{whole or '0'}.{part.rstrip('0') or '0'}"
    elif "f" in suffix:
        value += ".0"
    return value + suffix


_DROPPED = {"static", "inline", "__restrict__", "__restrict", "restrict", "__inline__", "register", "__host__"}


_SAME_TYPE = {
    "uint32_t": ("unsigned",),
    "uint": ("unsigned",),
    "int32_t": ("int",),
    "uint8_t": ("unsigned", "char"),
    "uchar": ("unsigned", "char"),
}
"""Types that have a commoner spelling."""


def words_of(text: str, reference: bool = False) -> list[str]:
    """The canonical words of C text, without comments. In a reference, `const` says nothing new and is dropped."""
    words: list[str] = []
    tokens = [token for token in lex(text) if token[0] != "comment"]
    position = 0
    while position < len(tokens):
        kind, spelling = tokens[position]
        position += 1
        if kind == "directive":
            flat = " ".join(spelling.replace("\\\n", " ").split())
            if flat.startswith("#pragma unroll") and not reference:
                words += [*flat.split(), "\n"]
            continue
        if kind == "number":
            words.append(_number(spelling))
        elif kind == "text":
            words.append('""' if spelling.startswith('"') else spelling)
        elif kind == "name":
            if spelling in _DROPPED:
                continue
            if reference and spelling == "const" and "*" not in (token[1] for token in tokens[position : position + 3]):
                continue
            if spelling in ("extern", "__launch_bounds__"):
                # `extern "C"` and launch bounds say nothing about the body.
                if spelling == "extern" and position < len(tokens) and tokens[position][0] == "text":
                    position += 1
                    continue
                if spelling == "__launch_bounds__":
                    position = _after_parentheses(tokens, position)
                    continue
            if spelling == "std" and position < len(tokens) and tokens[position][1] == "::":
                position += 1
                continue
            if spelling == "static_cast" and position < len(tokens) and tokens[position][1] == "<":
                close = next((at for at in range(position, len(tokens)) if tokens[at][1] == ">"), None)
                if close is not None:
                    words += ["(", *(token[1] for token in tokens[position + 1 : close]), ")"]
                    position = close + 1
                    continue
            following = tokens[position][1] if position < len(tokens) else ""
            if spelling == "unsigned" and following == "int":
                position += 1
            if spelling == "long" and following == "long":
                words.append(_LONG_LONG)
                position += 1
                continue
            words += _SAME_TYPE.get(spelling, (spelling,))
        else:
            words.append(spelling)
    return _plain_increments(words)


def _plain_increments(words: list[str]) -> list[str]:
    """`++i` as a statement or loop step is `i++`."""
    for at in range(len(words) - 2):
        if words[at] in ("++", "--") and words[at + 2] in (")", ";") and _is_name(words[at + 1]):
            if at == 0 or words[at - 1] in (";", "{", "}", ")"):
                words[at], words[at + 1] = words[at + 1], words[at]
    return words


def _after_parentheses(tokens: Sequence[tuple[str, str]], position: int) -> int:
    depth = 0
    for at in range(position, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at][1], 0)
        if depth <= 0:
            return at + 1
    return len(tokens)


def _is_name(word: str) -> bool:
    return bool(re.match(r"[A-Za-z_]\w*\Z", word))


def _is_number(word: str) -> bool:
    return bool(re.match(r"\d|\.\d", word))


_COMPONENTS = frozenset("xyzw")
_PROTECTED = "\0"
"""Marks a word of the layout itself, which no placeholder may replace."""

INDEX_NAMES = ("i", "j", "k", "l", "ii", "jj", "kk")
"""Loop variables of a reference, by depth."""

_KERNEL_OWN = frozenset(INDEX_NAMES) | frozenset(
    """idx tid gid index id t tx ty row col r c x y x0 y0 lane warp bid blk smem sdata cache buf partial tile As Bs s offset step
    v0 v1 part0 part1 shared""".split()
)
"""Names that the model gives to what only a kernel has: a local of the reference of that name is renamed."""


def _value(number: str) -> str:
    """A literal without its `f`: one placeholder serves a reference in double and a kernel in float."""
    return number if number.startswith("0x") else number.removesuffix("f")


@frozen
class Names:
    """The placeholders of one request, both ways.

    Placeholders are dealt from a place that depends on the request, so that training meets all of them equally often.
    """

    forward: dict[str, str] = field(factory=dict)
    backward: dict[str, str] = field(factory=dict)

    @classmethod
    def of(
        cls,
        words: Iterable[str],
        forced: frozenset[str] = frozenset(),
        kept: frozenset[str] | None = None,
        usual: Mapping[str, str] | None = None,
    ) -> "Names":
        """Placeholders for every rare name and literal of `words` and for all `forced` names, by first appearance.

        A name outside `kept` that the model uses for its own variables comes back with an underscore. `usual` maps names
        of the document to the names that the model uses for such a variable.
        """
        listed = list(words)
        offset = zlib.crc32(" ".join(listed).encode("utf-8", "surrogatepass"))
        names = cls()
        for name, known in (usual or {}).items():
            names.forward[name] = known
            names.backward[known] = name
        name_count = number_count = 0
        present = set(listed)
        for at, word in enumerate(listed):
            if _is_number(word) and word not in KNOWN_NUMBERS:
                value = _value(word)
                if value not in names.forward and number_count < NUMBER_PLACEHOLDERS:
                    placeholder = f"K{(offset + number_count) % NUMBER_PLACEHOLDERS}"
                    names.forward[value] = placeholder
                    names.backward[placeholder] = value
                    number_count += 1
            elif _is_name(word) and word not in names.forward and (word not in KNOWN or word in forced):
                if at and listed[at - 1] in (".", "->") and word in _COMPONENTS:
                    continue
                if name_count < NAME_PLACEHOLDERS:
                    placeholder = f"V{(offset + name_count) % NAME_PLACEHOLDERS}"
                    names.forward[word] = placeholder
                    shown = word
                    if kept is not None and word not in kept and word in _KERNEL_OWN:
                        while shown in present:
                            shown += "_"
                    names.backward[placeholder] = shown
                    name_count += 1
        return names

    def hide_all(self, words: Sequence[str]) -> list[str]:
        """The words that the model sees; `.x` of `threadIdx.x` is no variable."""
        hidden = []
        for at, word in enumerate(words):
            if word.startswith(_PROTECTED):
                hidden.append(word[1:])
            elif at and words[at - 1] in (".", "->") and word in _COMPONENTS:
                hidden.append(word)
            else:
                hidden.append(self.hide(word))
        return hidden

    def hide(self, word: str) -> str:
        """The word that the model sees for `word`."""
        if word in self.forward:
            return self.forward[word]
        if _is_number(word) and word not in KNOWN_NUMBERS:
            value = _value(word)
            if value in self.forward:
                return self.forward[value] + word[len(value) :]
        return word

    def show(self, word: str) -> str:
        """The word that the document sees for `word`; a placeholder that stands for nothing becomes a plain name."""
        if word in KNOWN:
            return self.backward.get(word, word)
        if _PLACEHOLDER_NAME.match(word):
            shown = self.backward.get(word, word.lower() + "_")
            return "long long" if shown == _LONG_LONG else shown
        number = _PLACEHOLDER_NUMBER.match(word)
        if number:
            value = self.backward.get("K" + number.group(1))
            if value is None:
                return word
            if number.group(2) == "f" and not re.search(r"[.e]", value):
                return value + ".0f"
            return value + number.group(2)
        return word


@frozen
class Prompt:
    """What the model is told, as words: `prefix` before the region, `suffix` after it, and the placeholders in use."""

    prefix: tuple[str, ...]
    suffix: tuple[str, ...]
    names: Names

    @property
    def text(self) -> str:
        """The prompt as the tokenizer is given it."""
        return f"{PRE}{spell(self.prefix)}{SUF}{spell(self.suffix)}{MID}"


def spell(words: Iterable[str]) -> str:
    """Words as the tokenizer sees them: each begins with one blank."""
    return "".join(" " + word for word in words)


def compose(request: FillRequest, limit: int = 448) -> Prompt:
    """The prompt of a request: the reference, the directive and the kernel's head stay, the rest is cut to `limit` words."""
    head_at = request.kernel_prefix.find("__global__")
    above = request.kernel_prefix[:head_at] if head_at >= 0 else ""
    opening = request.kernel_prefix[head_at:] if head_at >= 0 else request.kernel_prefix
    template_at = above.rfind("template")
    if template_at >= 0 and "//" not in above[template_at:] and ";" not in above[template_at:]:
        above, opening = above[:template_at], above[template_at:] + opening

    name, parameters = _signature(opening)
    kernel = words_of(opening)
    if name:
        kernel = _renamed_head(kernel, name)
    suffix = words_of(request.kernel_suffix)
    loops = None if request.reference_text else _loops_of_torch(request, above, opening)
    if loops is not None:
        parameter_list = ", ".join(f"float {parameter}" for parameter in parameters)
        request = evolve(request, reference_text=f"void reference({parameter_list}) {loops}")
    reference = _reference_words(request, opening, parameters)
    directive = _directive_words(request, above, name, with_torch=loops is None)
    comments = _comment_words(above, set(parameters)) + _closing_comment(opening, set(parameters))
    used = set(kernel) | set(suffix) | set(reference)
    declarations = _declaration_words(request, used)

    # With something to copy from, what a name says is not needed, and a placeholder is copied more surely.
    described = bool(reference) or _PROTECTED + "torch" in directive or "=" in comments
    locals_ = set(_declared(reference)) - set(INDEX_NAMES)
    usual = _usual_names(kernel, {*parameters, *suffix, *reference})
    missing = _missing_names(kernel, suffix, {*parameters, *_declared(declarations)})
    spare = [name for name in _declared(reference) if name not in {*kernel, *suffix, *INDEX_NAMES}]
    if missing and len(missing) == len(spare):
        # What the region must declare for the text after it is what the reference calls by another name.
        reference = _rename(reference, dict(zip(spare, missing, strict=True)))
        locals_ = set(_declared(reference)) - set(INDEX_NAMES)
    forced = frozenset((set(parameters) if described else set()) | locals_) - _RESERVED - frozenset(usual)
    kept = frozenset(kernel) | frozenset(suffix) | frozenset(declarations)
    names = Names.of([*declarations, *reference, *directive, *kernel, *suffix], forced, kept, usual)
    comments = [word for word in comments if word in KNOWN or word in names.forward or not _is_name(word)]
    names = Names.of([*declarations, *reference, *directive, *kernel, *suffix, *comments], forced, kept, usual)
    return _fit(declarations, reference, directive, comments, kernel, suffix, names, limit)


_OWN_INDEX_NAMES = frozenset("i idx tid gid index id t tx row col r c x y j iy ix lane".split())


def _usual_names(kernel: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Names of the kernel's thread index, block index and shared array -> those that training used for them."""
    text = " ".join(kernel)
    names: dict[str, str] = {}
    for pattern, usual in (
        (r"(\w+) = blockIdx \. x \* blockDim \. x \+ threadIdx \. x ;", "i"),
        (r"(\w+) = threadIdx \. x ;", "tid"),
        (r"(\w+) = blockIdx \. x ;", "row"),
        (r"__shared__ \w+ (\w+) \[ \w+ \] ;", "smem"),
    ):
        found = re.search(pattern, text)
        if found is None or found.group(1) in _OWN_INDEX_NAMES or found.group(1) in names:
            continue
        if usual not in kernel and usual not in taken and found.group(1) != usual:
            names[found.group(1)] = usual
    return names


def _missing_names(kernel: Sequence[str], suffix: Sequence[str], known: set[str]) -> list[str]:
    """Names that the text after the region uses and nothing before it declares, by first appearance."""
    before = set(kernel)
    own = set(_declared(suffix))
    missing: list[str] = []
    for at, word in enumerate(suffix):
        if (
            not _is_name(word)
            or (word in KNOWN and word in _RESERVED)
            or word in known
            or word in before
            or word in own
        ):
            continue
        if (at and suffix[at - 1] in (".", "->")) or suffix[at + 1 : at + 2] == ["("] or word.isupper():
            continue
        if word not in missing:
            missing.append(word)
    return missing


def _fit(
    declarations: list[str],
    reference: list[str],
    directive: list[str],
    comments: list[str],
    kernel: list[str],
    suffix: list[str],
    names: Names,
    limit: int,
) -> Prompt:
    """Cut the least telling parts first.

    These are comments, declarations, the far end of the suffix, then the kernel between its head and the last words
    before the region.
    """
    over = len(declarations) + len(reference) + len(directive) + len(comments) + len(kernel) + len(suffix) - limit
    if over > 0:
        over -= len(comments)
        comments = []
    if over > 0:
        over -= len(declarations)
        declarations = []
    if over > 0 and len(suffix) > 48:
        kept = max(48, len(suffix) - over)
        over -= len(suffix) - kept
        suffix = suffix[:kept]
    if over > 0 and len(kernel) > 160:
        kept = max(160, len(kernel) - over)
        over -= len(kernel) - kept
        head = min(kernel.index("{") + 1 if "{" in kernel else 64, 80)
        kernel = kernel[:head] + kernel[len(kernel) - (kept - head) :]
    if over > 0:
        reference = reference[: max(0, len(reference) - over)]
    prefix = [*declarations, *reference, *directive, *comments, *kernel]
    return Prompt(tuple(names.hide_all(prefix[-limit:])), tuple(names.hide_all(suffix)), names)


def _signature(opening: str) -> tuple[str, list[str]]:
    """Name and parameter names of the kernel whose definition `opening` begins."""
    match = re.search(r"([A-Za-z_]\w*)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", "", opening))
    if match is None:
        return "", []
    cleaned = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", opening)
    return match.group(1), _parameter_names(cleaned[match.end() - 1 :])


def _parameter_names(text: str) -> list[str]:
    """Names in the parenthesis that `text` begins with."""
    tokens = [token for token in lex(text) if token[0] != "comment"]
    inside = tokens[1 : _after_parentheses(tokens, 0) - 1]
    names: list[str] = []
    last = ""
    depth = 0
    for kind, spelling in [*inside, ("operator", ",")]:
        if spelling in ("(", "[", "<"):
            depth += 1
        elif spelling in (")", "]", ">"):
            depth -= 1
        if spelling == "," and depth == 0:
            if last:
                names.append(last)
            last = ""
        elif kind == "name" and depth == 0:
            last = spelling
    return names


def _topic_words(name: str) -> list[str]:
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return [part.lower() for part in parts if part.lower() in _TOPIC_WORDS]


def _renamed_head(kernel: list[str], name: str) -> list[str]:
    """A kernel's name as the telling words in it, or `kernel`."""
    if name not in kernel:
        return kernel
    at = kernel.index(name)
    told = [_PROTECTED + word for word in _topic_words(name) or ["kernel"]]
    return kernel[:at] + told + kernel[at + 1 :]


def _reference_words(request: FillRequest, opening: str, parameters: list[str]) -> list[str]:
    """`ref { body }` with the kernel's parameter names, or the reference's own list where the counts differ."""
    text = request.reference_text
    if not text:
        return []
    match = re.search(r"[A-Za-z_]\w*\s*\(", text)
    brace = text.find("{", match.end()) if match else -1
    if match is None or brace < 0:
        return [_PROTECTED + "ref", *words_of(text, reference=True)]
    own = _parameter_names(text[match.end() - 1 : brace])
    body = with_braces(_single_declarations(words_of(text[brace:], reference=True)))
    head: list[str] = []
    if len(own) == len(parameters) and not (set(parameters) - set(own)) & set(body):
        body = _rename(body, dict(zip(own, parameters, strict=True)))
    elif own != parameters:
        # A local of the reference would be taken for a parameter of the kernel: show the reference's own list.
        head = words_of(text[match.end() - 1 : brace], reference=True)
    loops = loop_variables(body)
    # A plain local called `j` leaves that name to a loop, unless the kernel uses it already.
    shadowed = set(_declared(body)) & set(INDEX_NAMES) - set(loops) - set(words_of(opening))
    body = _rename(body, {name: name + "_" for name in shadowed})
    taken = (set(body) | set(parameters)) - set(loops)
    return [_PROTECTED + "ref", *head, *_rename(body, loop_names(body, taken))]


def loop_variables(words: Sequence[str]) -> dict[str, int]:
    """Variables of the `for` loops in `words` and how deep each is when first met."""
    found: dict[str, int] = {}
    ends: list[int] = []
    depth = 0
    for at, word in enumerate(words):
        if word == "{":
            depth += 1
        elif word == "}":
            depth -= 1
            while ends and ends[-1] > depth:
                ends.pop()
        elif word == "for" and at + 2 < len(words):
            place = at + 2
            while place < len(words) and words[place] in _TYPE_WORDS:
                place += 1
            if place + 1 < len(words) and _is_name(words[place]) and words[place + 1] == "=":
                found.setdefault(words[place], len(ends))
            ends.append(depth + 1)
    return found


def loop_names(words: Sequence[str], taken: set[str]) -> dict[str, str]:
    """New names for the loop variables of a reference: `i` outside, then `j`, `k`, ... as far as they are free."""
    free = [name for name in INDEX_NAMES if name not in taken]
    return {variable: free[depth] for variable, depth in loop_variables(words).items() if depth < len(free)}


def _declared(words: Sequence[str]) -> list[str]:
    """Names that a declaration in `words` introduces."""
    return [
        word
        for at, word in enumerate(words)
        if at
        and _is_name(word)
        and (words[at - 1] in _TYPE_WORDS or (words[at - 1] == "*" and at > 1 and words[at - 2] in _TYPE_WORDS))
        and at + 1 < len(words)
        and words[at + 1] in ("=", ";", "[", ",", ")")
        and word not in _RESERVED
    ]


def _single_declarations(words: list[str]) -> list[str]:
    """`int a = 1, b = 2;` as two declarations; loop heads stay as they are."""
    result: list[str] = []
    at = 0
    while at < len(words):
        if words[at] in _TYPE_WORDS and (not result or result[-1] in (";", "{", "}")):
            end = at
            while end < len(words) and words[end] in _TYPE_WORDS:
                end += 1
            kind = words[at:end]
            depth = 0
            while end < len(words) and not (words[end] == ";" and depth == 0):
                depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(words[end], 0)
                if words[end] == "," and depth == 0:
                    result += [*words[at:end], ";"]
                    words = [*words[: end + 1], *kind, *words[end + 1 :]]
                    at = end + 1
                    end = at + len(kind) - 1
                end += 1
            result += words[at:end]
            at = end
        else:
            result.append(words[at])
            at += 1
    return result


_JUMPS = frozenset({"return", "continue", "break"})


def with_braces(words: list[str]) -> list[str]:
    """Every controlled statement in braces, but for a plain jump. Unfinished code is left as it is."""
    result: list[str] = []

    def statement(at: int) -> int:
        """Copy one statement from `at`; the place after it."""
        if at >= len(words):
            return at
        word = words[at]
        if word == "{":
            result.append(word)
            at += 1
            while at < len(words) and words[at] != "}":
                at = statement(at)
            if at < len(words):
                result.append("}")
            return at + 1
        if word in ("if", "for", "while"):
            result.append(word)
            at += 1
            depth = 0
            while at < len(words):
                depth += {"(": 1, ")": -1}.get(words[at], 0)
                result.append(words[at])
                at += 1
                if depth <= 0:
                    break
            at = controlled(at)
            if word == "if" and at < len(words) and words[at] == "else":
                result.append("else")
                at += 1
                at = statement(at) if at < len(words) and words[at] == "if" else controlled(at)
            return at
        if word in ("else", "\n"):
            result.append(word)
            return at + 1
        if word == "do":
            result.append(word)
            return controlled(at + 1)
        if word == "}":
            # It closes nothing here: the code begins inside a block.
            result.append(word)
            return at + 1
        depth = 0
        while at < len(words):
            if words[at] == "}" and depth <= 0:
                return at
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(words[at], 0)
            result.append(words[at])
            at += 1
            if result[-1] == ";" and depth <= 0:
                return at
        return at

    def controlled(at: int) -> int:
        if at >= len(words):
            return at
        if words[at] == "{" or words[at] in _JUMPS or words[at] == ";":
            return statement(at)
        result.append("{")
        at = statement(at)
        if result[-1] not in (";", "}"):
            # The statement is cut off: so is its block.
            result.pop(len(result) - 1 - result[::-1].index("{"))
            return at
        result.append("}")
        return at

    place = 0
    while place < len(words):
        place = statement(place)
    return result


def _rename(words: list[str], renaming: dict[str, str]) -> list[str]:
    """Rename variables, not members."""
    return [
        renaming.get(word, word) if at == 0 or words[at - 1] not in (".", "->") else word
        for at, word in enumerate(words)
    ]


def _clauses(above: str) -> list[str]:
    clauses: list[str] = []
    for line in above.splitlines():
        match = re.match(r"\s*//\s*dice:(.*)", line)
        if match:
            clauses += match.group(1).split(";")
    return clauses


def _loops_of_torch(request: FillRequest, above: str, opening: str) -> str | None:
    """The torch expression as loops, where the directive says the buffers' extents and there is one output."""
    clauses = _clauses(above)
    written = next(
        (match.group(1) for match in (re.match(r"\s*ref\s+torch:(.*)", clause) for clause in clauses) if match), None
    )
    expression = request.torch_expression or written
    if not expression:
        return None
    buffers: dict[str, dict[str, list[str]]] = {"in": {}, "out": {}, "io": {}, "tmp": {}}
    for clause in clauses:
        kind = _CLAUSE.match(clause)
        if kind and kind.group(1) in buffers:
            for name, extents in re.findall(r"(\w+)\s*\[([^\]]*)\]", clause[kind.end() :]):
                buffers[kind.group(1)][name] = [extent.strip() for extent in extents.split(",")]
    outputs = {**buffers["out"], **buffers["io"]}
    types = _parameter_types(opening)
    if len(outputs) != 1:
        return None
    ((output, extents),) = outputs.items()
    scalars = [name for name, kind in types.items() if "*" not in kind]
    element = types.get(output, "").replace("*", "").replace("const", "").strip()
    inputs = {**buffers["in"], **buffers["io"]}
    return as_loops(expression, inputs, scalars, output, extents, element)


def _parameter_types(opening: str) -> dict[str, str]:
    """Parameter name -> its type as words, of the kernel whose definition `opening` begins."""
    cleaned = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", opening)
    match = re.search(r"[A-Za-z_]\w*\s*\(", cleaned)
    if match is None:
        return {}
    tokens = [token for token in lex(cleaned[match.end() - 1 :]) if token[0] != "comment"]
    inside = tokens[1 : _after_parentheses(tokens, 0) - 1]
    types = {}
    for part in _split_arguments([token[1] for token in inside if token[1] not in _DROPPED]):
        if part and _is_name(part[-1]):
            types[part[-1]] = " ".join(part[:-1])
    return types


_CLAUSE = re.compile(r"^\s*(in|out|io|tmp|launch|ref)\b")


def _directive_words(request: FillRequest, above: str, name: str, with_torch: bool) -> list[str]:
    """Buffers with their extents, launch and torch expression, from the directive or else from the launch site."""
    clauses = _clauses(above)
    words: list[str] = []
    torch = request.torch_expression
    launched = False
    for clause in clauses:
        kind = _CLAUSE.match(clause)
        if kind is None:
            continue
        if kind.group(1) == "ref":
            found = re.match(r"\s*ref\s+torch:(.*)", clause)
            torch = torch or (found.group(1) if found else None)
            continue
        if kind.group(1) == "launch":
            launched = True
        else:
            # Initial values say nothing about the body.
            clause = re.sub(r"\]\s*:\s*\w+(\([^)]*\))?", "]", clause)
        listed = words_of(clause)
        words += [_PROTECTED + listed[0], *listed[1:], ";"]
    if not launched and name:
        words += _launch_site(request, name)
    words = _with_values(words, request)
    if torch and with_torch:
        words += [_PROTECTED + "torch", *_torch_words(torch), ";"]
    return [_PROTECTED + "//dice", *words, "\n"] if words else []


def _torch_words(expression: str) -> list[str]:
    """Words of a torch expression; the names after a dot are its methods, not variables."""
    listed = words_of(expression)
    return [
        _PROTECTED + word if word in _TORCH_WORDS and ((at and listed[at - 1] == ".") or word == "torch") else word
        for at, word in enumerate(listed)
    ]


_TORCH_WORDS = frozenset(_TORCH + _MATH)


def _with_values(words: list[str], request: FillRequest) -> list[str]:
    """Launch and extents with the file's named integers as numbers: `BLOCK` -> `16`."""
    values: dict[str, str] = {}
    for text in (request.file_prefix, request.file_suffix):
        for match in _NAMED_INTEGER.finditer(text):
            values[match.group(1) or match.group(3)] = match.group(2) or match.group(4)
    return [values.get(word, word) for word in words]


_NAMED_INTEGER = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)\)?[ \t]*(?://[^\n]*)?$"
    r"|\b(?:const|constexpr)\s[\w ]*?\b(\w+)\s*=\s*(\d+)\s*;",
    re.MULTILINE,
)


def _launch_site(request: FillRequest, name: str) -> list[str]:
    """`launch <<< grid , block >>> ;` of the file's first launch of the kernel, variables replaced by what they hold."""
    for text in (request.file_suffix, request.file_prefix):
        match = re.search(rf"\b{re.escape(name)}\s*(?:<[^<>;]*>)?\s*<<<(.*?)>>>", text, re.DOTALL)
        if match:
            before = text[: match.start()]
            parts = _split_arguments(words_of(match.group(1)))[:2]
            return [_PROTECTED + "launch", "<<<", *_joined([_held(part, before) for part in parts]), ">>>", ";"]
    return []


def _joined(parts: list[list[str]]) -> list[str]:
    joined: list[str] = []
    for part in parts:
        joined += ([","] if joined else []) + part
    return joined


def _split_arguments(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(word, 0)
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _held(words: list[str], before: str) -> list[str]:
    """The initialiser of a variable that stands alone as a launch argument, as last declared in `before`."""
    if len(words) != 1 or not _is_name(words[0]):
        return words
    name = re.escape(words[0])
    found = list(re.finditer(rf"\bdim3\s+{name}\s*[({{]([^;]*)[)}}]\s*;|\b{name}\s*=\s*([^;]*);", before))
    found += list(re.finditer(rf"#\s*define\s+{name}[ \t]+()([^\n]*)", before))
    if not found:
        return words
    if found[-1].group(1):
        return ["{", *words_of(found[-1].group(1)), "}"]
    held = words_of(found[-1].group(2))
    return held if 0 < len(held) <= 16 else words


def _comment_words(above: str, known: set[str]) -> list[str]:
    """Formulas in the last comment lines above the kernel, and the telling words of others."""
    lines = [spelling for kind, spelling in lex(above) if kind == "comment"]
    words: list[str] = []
    for line in [part for comment in lines for part in comment.splitlines()][-4:]:
        if re.match(r"\s*//\s*dice:", line):
            continue
        words += _comment_line(line, known)
    return words


def _closing_comment(opening: str, known: set[str]) -> list[str]:
    """The comment that stands directly before the region, if any."""
    tokens = lex(opening)
    if tokens and tokens[-1][0] == "comment":
        return _comment_line(tokens[-1][1], known)
    return []


def _comment_line(line: str, known: set[str]) -> list[str]:
    text = re.sub(r"^\s*(?://[/!]*|/\*+|\*+(?!\w))|\*/\s*$", "", line)
    words = words_of(text)
    if "=" in words and known & set(words):
        return ["//", *words[:60], "\n"]
    topics = [topic for word in words if _is_name(word) for topic in _topic_words(word)]
    return ["//", *topics[:6], "\n"] if topics else []


_DECLARATION = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<macro>[A-Za-z_]\w*)(?P<rest>(?:[ \t(](?:[^\n\\]|\\\n)*)?)$"
    r"|^[ \t]*(?:(?:static|constexpr|const|__constant__)\s+)+[\w ]+?\s(?P<constant>[A-Za-z_]\w*)(?:\[[^\]]*\])?\s*(?:=[^;{}]*)?;"
    r"|^[ \t]*(?:typedef\s+)?struct\s+(?:__align__\s*\([^)]*\)\s*)?(?P<struct>\w+)\s*\{[^{}]*\}\s*\w*\s*;"
    r"|^[ \t]*(?:using\s+(?P<using>\w+)\s*=|typedef\s+[\w ]+?\s(?P<typedef>\w+)\s*;)[^;\n]*;?"
    r"|^[ \t]*(?:template\s*<[^>]*>\s*)?(?:static\s+|inline\s+|__forceinline__\s+|__host__\s+)*__device__[^;{}()]*?"
    r"(?P<function>\w+)\s*\([^;{}]*\)\s*\{[^{}]*\}",
    re.MULTILINE,
)


def _declaration_words(request: FillRequest, used: set[str]) -> list[str]:
    """Macros, constants, structs, aliases and one-statement device functions of the file that the kernel uses by name."""
    words: list[str] = []
    for text in (request.file_prefix, request.file_suffix):
        for match in _DECLARATION.finditer(text):
            name = next((found for found in match.groupdict(default="").values() if found and found in used), None)
            if name is None or name == (match.group("rest") or ""):
                continue
            if match.group("macro"):
                declared = ["#", name, *words_of(match.group("rest") or ""), "\n"]
            else:
                declared = words_of(match.group())
            if len(declared) <= 80:
                words += declared
    return words


def middle_words(text: str, prompt: Prompt) -> list[str]:
    """A middle in the model's words; names that the prompt lacks get the next free placeholders."""
    listed = with_braces(_single_declarations(words_of(text)))
    free = [f"V{at}" for at in range(NAME_PLACEHOLDERS) if f"V{at}" not in prompt.names.backward]
    fresh: dict[str, str] = {}
    hidden: list[str] = []
    for word, seen in zip(listed, prompt.names.hide_all(listed), strict=True):
        if seen == word and _is_name(word) and word not in KNOWN:
            if word not in fresh and free:
                fresh[word] = free.pop(0)
            seen = fresh.get(word, word)
        hidden.append(seen)
    return hidden


def encode(request: FillRequest, tokenizer: Any, budget: int) -> list[int]:
    """Token ids of the prompt, at most `budget`: ends with `<mid>`, the reply comes next.

    `tokenizer` is a `tokenizers.Tokenizer` or a fast tokenizer of `transformers`.
    """
    limit = budget
    while True:
        encoded = tokenizer.encode(compose(request, limit).text)
        ids = list(getattr(encoded, "ids", encoded))
        if len(ids) <= budget or limit <= 32:
            return ids if len(ids) <= budget else ids[:1] + ids[len(ids) - budget + 1 :]
        limit = max(32, limit - max(8, len(ids) - budget))


def decode_middle(text: str, request: FillRequest) -> str:
    """The reply `text` as the document's text for the region, in the document's names, indentation and line breaks."""
    names = compose(request).names
    reply = text.split(EOM, 1)[0]
    for special in SPECIALS:
        reply = reply.replace(special, " ")
    words = [names.show(word) for word in re.findall(r"\n|[^ \n]+", reply)]
    return lay_out(_with_thread_index(words, request), request)


def _with_thread_index(words: list[str], request: FillRequest) -> list[str]:
    """`tid` as `threadIdx.x` where neither the reply nor the kernel declares it: no other reading would compile."""
    before = words_of(request.kernel_prefix)
    assigned = any(pair == ("tid", "=") for pair in pairwise(words))
    if "tid" not in words or "tid" in before or assigned:
        return words
    listed: list[str] = []
    for word in words:
        listed += ["threadIdx", ".", "x"] if word == "tid" else [word]
    return listed


def lay_out(words: Sequence[str], request: FillRequest) -> str:
    """Words as lines for the region's place: the white space at both ends is the region's own."""
    unit = _indent_unit(request)
    last_line = request.kernel_prefix.rsplit("\n", 1)[-1]
    head_line = next((line for line in request.kernel_prefix.splitlines() if "__global__" in line), "")
    head_indent = head_line[: len(head_line) - len(head_line.lstrip())]
    middle = request.middle
    whole_block = request.kernel_prefix.rstrip().endswith("{") and request.kernel_suffix.lstrip().startswith("}")
    if middle.strip():
        lead = middle[: len(middle) - len(middle.lstrip())]
        tail = middle[len(middle.rstrip()) :]
        if whole_block and "\n" not in middle:
            lead = tail = ""
    else:
        lead = tail = ""
    if whole_block and not lead and last_line.strip():
        opening = last_line[: len(last_line) - len(last_line.lstrip())]
        base = opening + unit
        lead, tail = "\n" + base, "\n" + opening
        if request.kernel_suffix[:1] in ("\n", "\r"):
            tail = ""
    elif "\n" in lead:
        base = lead.rsplit("\n", 1)[1]
        if not base and whole_block:
            base = head_indent + unit
            lead += base
    elif not last_line.strip():
        base = last_line + lead
    else:
        base = request.indent
    lines = _lines(words, unit)
    text = lead + "\n".join(line if at == 0 else (base + line if line else "") for at, line in enumerate(lines)) + tail
    if "\r\n" in request.kernel_prefix or "\r\n" in request.file_prefix:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return text


def _indent_unit(request: FillRequest) -> str:
    texts = (request.kernel_prefix, request.middle, request.kernel_suffix, request.file_prefix, request.file_suffix)
    for text in texts:
        indents = [match.group(1) for match in re.finditer(r"^([ \t]+)\S", text, re.MULTILINE)]
        if indents:
            if any("\t" in indent for indent in indents):
                return "\t"
            return " " * min(max(min(len(indent) for indent in indents), 2), 8)
    return "    "


def _lines(words: Sequence[str], unit: str) -> list[str]:
    """Statements on lines of their own, blocks indented by `unit`; the first line has no indent."""
    lines: list[str] = []
    current: list[str] = []
    parentheses = depth = 0
    braces: list[bool] = []

    def end(at_depth: int) -> None:
        if current:
            lines.append(unit * max(at_depth, 0) + _spaced(current))
            current.clear()

    for word in words:
        if word == "\n":
            end(depth)
        elif word == "{":
            listed = bool(current) and current[-1] in ("=", ",", "{", "(")
            braces.append(listed)
            current.append(word)
            if not listed:
                end(depth)
                depth += 1
        elif word == "}":
            listed = braces.pop() if braces else False
            if listed:
                current.append(word)
            else:
                end(depth)
                depth -= 1
                current.append(word)
                end(depth)
        elif word == "else" and lines and lines[-1].strip() == "}" and not current:
            lines.pop()
            current += ["}", "else"]
        elif word == ";" and not current and lines and lines[-1].strip() == "}":
            lines[-1] += ";"
        else:
            parentheses += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word, 0)
            current.append(word)
            if word == ";" and parentheses <= 0:
                end(depth)
    end(depth)
    return [folded for line in lines for folded in _folded(line, unit)] or [""]


def _folded(line: str, unit: str) -> list[str]:
    """A long `if (...) statement;` on two lines."""
    if len(line) <= LINE_LIMIT or not re.match(r"\s*(?:if|for|while|\} else if)\b", line) or line.endswith("{"):
        return [line]
    depth = 0
    for at, character in enumerate(line):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ")" and depth == 0 and line[at + 1 :].strip():
            indent = line[: len(line) - len(line.lstrip())]
            return [line[: at + 1], indent + unit + line[at + 1 :].strip()]
    return [line]


_TIGHT_AFTER = {"(", "[", "!", "~", ".", "->", "::"}
_TIGHT_BEFORE = {")", "]", ";", ",", ".", "->", "::"}
_UNARY = {"-", "+", "*", "&", "!", "~"}
_CONTROL = {"if", "for", "while", "switch", "return", "else", "case", "do"}
_TYPE_WORDS = frozenset([*_TYPES, _LONG_LONG])


def _spaced(words: Sequence[str]) -> str:
    """Words of one line with the usual spaces between them."""
    text = ""
    previous = ""
    tight_next = False
    casts = _cast_ends(words)
    for at, word in enumerate(words):
        operand_before = bool(previous) and (
            (previous in (")", "]") and at - 1 not in casts)
            or (bool(re.match(r"\w", previous)) and previous not in _CONTROL)
        )
        glue = tight_next or not text or previous in _TIGHT_AFTER or word in _TIGHT_BEFORE
        tight_next = False
        if word == "(":
            glue = glue or (bool(re.match(r"\w", previous)) and previous not in _CONTROL) or previous == ")"
            glue = glue or (previous == ">" and _closes_template(words, at - 1))
            if previous == ")" and at - 1 not in casts:
                glue = False
        elif word == "[":
            glue = True
        elif word in ("++", "--"):
            if operand_before:
                glue = True
            else:
                tight_next = True
        elif word == "*" and previous in _TYPE_WORDS:
            glue = True
        elif word in _UNARY and not operand_before and previous not in _TYPE_WORDS:
            tight_next = True
        elif word == ":" and previous in ("default",):
            glue = True
        if at - 1 in casts and word != "{":
            glue = True
        text += word if glue else " " + word
        previous = word
    return text


def _closes_template(words: Sequence[str], at: int) -> bool:
    return "<" in words[max(0, at - 4) : at]


def _cast_ends(words: Sequence[str]) -> set[int]:
    """Places of the `)` that close a cast."""
    ends = set()
    for at, word in enumerate(words):
        if word != "(" or (at and re.match(r"\w", words[at - 1]) and words[at - 1] not in _CONTROL):
            continue
        close = at + 1
        while close < len(words) and (words[close] in _TYPE_WORDS or words[close] in ("*", "const")):
            close += 1
        if close > at + 1 and close < len(words) and words[close] == ")":
            ends.add(close)
    return ends
