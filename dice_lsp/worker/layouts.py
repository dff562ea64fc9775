"""Where the compiler puts what is in the structs that a kernel takes, by value or behind a pointer.

A struct's text says what is in it (`source.structs`), and the device compiler says where: a second kernel is compiled
beside the first, whose table holds the size of each struct and, for each member, offset, size and kind, all made by
`sizeof` and the front end's `offsetof` on the types of the kernel's own parameters. The table is read out of the device code,
so that nothing is run. What the text says and the compiler contradicts is no layout.
"""

import re
import struct
from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from dice_lsp.records import Compiled, Kernel, Parameter, StructField
from dice_lsp.source.kernels import parse
from dice_lsp.source.structs import Leaf, leaves
from dice_lsp.worker.compile import Compiler, template_arguments
from dice_lsp.worker.elements import Kind, element_of
from dice_lsp.worker.elf import contents
from dice_lsp.worker.program import CompileJob, build_keys

_TABLE = "dice_layout_table"
_PROBE = "dice_layout_probe"
_POINTER, _FLOAT, _SIGNED, _UNSIGNED, _OTHER = 1, 2, 3, 4, 5
"""Kinds of members as the probe's table has them."""
_OPAQUE = re.compile(r"cuda(?:Texture|Surface)Object_t|CU(?:tex|surf)Object|CUtensorMap")

_NUMBERS = (
    "float", "double", "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int",
    "long", "unsigned long", "long long", "unsigned long long",
    *(f"{base}{lanes}" for base in ("float", "double", "int", "uint", "char", "uchar", "short", "ushort") for lanes in "234"),
)  # fmt: skip
_HALVES = {
    "__half": "__CUDA_FP16_TYPES_EXIST__", "__half2": "__CUDA_FP16_TYPES_EXIST__",
    "__nv_bfloat16": "__CUDA_BF16_TYPES_EXIST__", "__nv_bfloat162": "__CUDA_BF16_TYPES_EXIST__",
}  # fmt: skip
"""Types that a header brings, with the macro that the header defines."""
_NAMES = (*_NUMBERS, *_HALVES)


def _code(number: int, name: str) -> str:
    word = f"template <> struct code<{name}> {{ static constexpr int value = {number}; }};"
    return f"#ifdef {_HALVES[name]}\n{word}\n#endif" if name in _HALVES else word


_CODES = "\n".join(_code(number, name) for number, name in enumerate(_NAMES, 1))
_PRELUDE = f"""
namespace dice_layout {{
template <class T> struct bare {{ typedef T type; }};
template <class T> struct bare<T&> {{ typedef T type; }};
template <class T> struct bare<const T> {{ typedef T type; }};
template <class T> struct bare<const T&> {{ typedef T type; }};
template <class T> struct bare<volatile T&> {{ typedef T type; }};
template <class T> struct bare<T*> {{ typedef typename bare<T>::type type; }};
template <class T> struct is_number {{ static constexpr bool value = false; }};
#define DICE_NUMBER(T) template <> struct is_number<T> {{ static constexpr bool value = true; }};
DICE_NUMBER(bool) DICE_NUMBER(char) DICE_NUMBER(signed char) DICE_NUMBER(unsigned char) DICE_NUMBER(short)
DICE_NUMBER(unsigned short) DICE_NUMBER(int) DICE_NUMBER(unsigned) DICE_NUMBER(long) DICE_NUMBER(unsigned long)
DICE_NUMBER(long long) DICE_NUMBER(unsigned long long)
#undef DICE_NUMBER
template <class T, bool number> struct sign {{ static constexpr int value = {_OTHER}; }};
template <class T> struct sign<T, true> {{ static constexpr int value = T(-1) < T(0) ? {_SIGNED} : {_UNSIGNED}; }};
template <class T> struct kind {{ static constexpr int value = sign<T, is_number<T>::value>::value; }};
template <class T> struct kind<T*> {{ static constexpr int value = {_POINTER}; }};
template <class T> struct kind<T&> : kind<T> {{}};
template <class T> struct kind<const T> : kind<T> {{}};
template <class T> struct kind<const T&> : kind<T> {{}};
template <class T> struct kind<volatile T> : kind<T> {{}};
template <> struct kind<float> {{ static constexpr int value = {_FLOAT}; }};
template <> struct kind<double> {{ static constexpr int value = {_FLOAT}; }};
template <int N, class T, class... Rest> struct nth {{ typedef typename nth<N - 1, Rest...>::type type; }};
template <class T, class... Rest> struct nth<0, T, Rest...> {{ typedef typename bare<T>::type type; }};
template <class T> struct code {{ static constexpr int value = 0; }};
{_CODES}
template <class F, int N> struct parameter;
template <class... P, int N> struct parameter<void (*)(P...), N> {{ typedef typename nth<N, P...>::type type; }};
}}
"""


@frozen
class _Wanted:
    number: int
    """Place among the kernel's parameters."""
    parameter: Parameter
    leaves: tuple[Leaf, ...]


def laid_out(
    compiler: Compiler, job: CompileJob, kernel: Kernel, template: Mapping[str, str], headers: Mapping[str, str]
) -> Kernel:
    """The kernel with its structs laid out, as far as they are plain and the compiler agrees.

    Numbers that the text gives names of its own (`typedef unsigned data_t`) have the compiler's names afterwards.

    Args:
        compiler: the device compiler.
        job: how the kernel is compiled.
        kernel: a kernel of `job.text`.
        template: its template arguments.
        headers: texts of the document's own headers, where structs are looked for too.
    """
    candidates = [(n, p) for n, p in enumerate(kernel.parameters) if _is_unknown(p, template)]
    if not candidates:
        return kernel
    constants = parse(job.text).values
    wanted = []
    for number, parameter in candidates:
        name = _substituted(parameter.element, template)
        found = leaves((job.text, *headers.values()), name, {**constants, **_integers(template)})
        if found is not None:
            wanted.append(_Wanted(number, parameter, found))
    laid = {item.number: _asked(compiler, job, kernel, template, item) for item in wanted}
    unnamed = {p.element: n for n, p in candidates if laid.get(n) is None and p.element not in kernel.template}
    known = _named(compiler, job, kernel, template, unnamed)
    parameters = []
    for number, parameter in enumerate(kernel.parameters):
        if parameter.element in known:
            parameter = evolve(parameter, element=known[parameter.element], alias=parameter.element)
        parameters.append(laid.get(number) or parameter)
    return evolve(kernel, parameters=tuple(parameters))


def _is_unknown(parameter: Parameter, template: Mapping[str, str]) -> bool:
    """The type may be a struct of the user's."""
    name = _substituted(parameter.element, template)
    return element_of(name) is None and parameter.indirections <= 1 and name != "void" and not _OPAQUE.search(name)


def _substituted(name: str, template: Mapping[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda match: template.get(match.group(), match.group()), name)


def _integers(template: Mapping[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in template.items() if value.isdecimal()}


def _named(
    compiler: Compiler, job: CompileJob, kernel: Kernel, template: Mapping[str, str], wanted: Mapping[str, int]
) -> dict[str, str]:
    """What these types are, each that of the parameter of this number, as far as they are numbers or vectors of CUDA's."""
    rows = [
        f"dice_layout::code<dice_layout::parameter<dice_layout_kernel, {number}>::type>::value"
        for number in wanted.values()
    ]
    codes = _table(compiler, job, kernel, template, "", rows) if wanted else None
    found = zip(wanted, codes or (), strict=False)
    return {name: _NAMES[code - 1] for name, code in found if 0 < code <= len(_NAMES)}


def _asked(
    compiler: Compiler, job: CompileJob, kernel: Kernel, template: Mapping[str, str], wanted: _Wanted
) -> Parameter | None:
    """The parameter with its layout; None where the compiler does not know what the text says."""
    rows = ["sizeof(dice_layout_type)", "alignof(dice_layout_type)"]
    for leaf in wanted.leaves:
        member = f"static_cast<dice_layout_type*>(nullptr)->{leaf.designator}"
        # The front end's own word for `offsetof`, which NVRTC 13.0 does not have by any other name.
        rows.append(f"__INTADDR__(&((dice_layout_type*)0)->{leaf.designator})")
        rows += [f"sizeof({member})", f"dice_layout::kind<decltype(({member}))>::value"]
    head = f"typedef dice_layout::parameter<dice_layout_kernel, {wanted.number}>::type dice_layout_type;\n"
    numbers = _table(compiler, job, kernel, template, head, rows)
    return None if numbers is None else _agreed(wanted, numbers, template)


def _table(
    compiler: Compiler, job: CompileJob, kernel: Kernel, template: Mapping[str, str], head: str, rows: Sequence[str]
) -> tuple[int, ...] | None:
    """What these constant expressions are in the kernel's text; None where it does not compile with them."""
    arguments, missing = template_arguments(kernel, template)
    if missing:
        return None
    name = kernel.qualified_name + (f"<{', '.join(arguments)}>" if kernel.template else "")
    # Its body does not matter to the types, and without it the same probe serves all versions of the kernel.
    text = job.text[: kernel.body_start] + job.text[kernel.body_end :]
    values = ",\n".join(rows)
    probe = (
        f"{text}\n{_PRELUDE}typedef decltype(&{name}) dice_layout_kernel;\n{head}"
        f'extern "C" __device__ const unsigned long long {_TABLE}[] = {{{values}}};\n'
        # The kernel is named inside too, so that it is not left out with the text's other kernels.
        f"__global__ void {_PROBE}(unsigned long long* out) {{ typedef decltype(&{name}) of_kernel; "
        f"out[threadIdx.x] = {_TABLE}[threadIdx.x]; }}\n"
    )
    probing = tuple(k for k in parse(probe).kernels if k.name == _PROBE)
    if not probing:
        return None
    order = evolve(job, text=probe, kernels=probing, templates={}, block_threads={}, smem_bytes={}, alone=True)
    build = compiler.compile(order)[build_keys(probing)[0]]
    data = contents(build.cubin, _TABLE) if isinstance(build, Compiled) else None
    return None if data is None or len(data) != 8 * len(rows) else struct.unpack(f"<{len(rows)}Q", data)


def _agreed(wanted: _Wanted, numbers: Sequence[int], template: Mapping[str, str]) -> Parameter | None:
    """The layout, if every member is what its text says and nothing else has room between them."""
    size, alignment, *rest = numbers
    fields: list[StructField] = []
    end = 0
    for leaf, (offset, nbytes, kind) in zip(wanted.leaves, zip(*[iter(rest)] * 3, strict=True), strict=True):
        spelling = _substituted(leaf.element, template)
        if not _fits(leaf, spelling, nbytes, kind) or not 0 <= offset - end < alignment:
            return None
        fields.append(StructField(leaf.designator, spelling, leaf.pointer, leaf.const, offset, nbytes))
        end = offset + nbytes
    if not 0 <= size - end < alignment:
        return None
    return evolve(wanted.parameter, fields=tuple(fields), size_bytes=size)


def _fits(leaf: Leaf, spelling: str, nbytes: int, kind: int) -> bool:
    if leaf.pointer:
        return kind == _POINTER and nbytes == 8
    element = element_of(spelling)
    if element is None or element.lanes != 1 or element.itemsize != nbytes:
        return False
    if element.kind is Kind.FLOAT:
        return kind == (_FLOAT if nbytes >= 4 else _OTHER)
    signed = element.storage.kind == "i"
    # An enumeration is read as an integer.
    return kind in (_SIGNED if signed else _UNSIGNED, _OTHER)
