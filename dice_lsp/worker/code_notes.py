"""What a kernel's text says that a run may not show: state it keeps, other work it starts, digits it gives up.

Only the text without comments is read, and only what the kernel can reach: other kernels of the file are left out. A text
is easily disguised, so nothing here makes a kernel right; it makes notes, and reasons to doubt.
"""

import re
from collections.abc import Mapping

from dice_lsp.records import Compiled, Kernel
from dice_lsp.source.slice import kernels_of, without_kernels
from dice_lsp.source.tokens import without_comments
from dice_lsp.worker.elements import Kind, element_of
from dice_lsp.worker.launch import Source
from dice_lsp.worker.machine_code import called, writable_variables

_CLOCK = re.compile(r"\b(?:clock|clock64|__globaltimer)\s*\(|%(?:clock|globaltimer)")
_ATOMICS = re.compile(r"\batomic\w*|\bred\.|__nv_atomic")
_LAUNCH = re.compile(r"<<<(?P<inside>(?:[^<>]|<(?!<<)|>(?!>>))*)>>>")
_NAMED_STREAM = re.compile(r"\bcudaStream(?:Create\w*|FireAndForget|TailLaunch|PerThread|Legacy)\b")
_VECTOR = (
    r"(?P<base>float|double|uint|int|ushort|short|uchar|char|ulonglong|longlong|ulong|long)(?P<lanes>[1-4])|"
    r"__half2|half2|__nv_bfloat162|nv_bfloat162"
)
_VECTOR_CAST = re.compile(
    rf"(?:reinterpret_cast\s*<|\()\s*(?:const\s+|volatile\s+)*(?:{_VECTOR})\b(?:\s*(?:const|volatile))*\s*\*|"
    r"\bmemcpy_async\b|\bcp\.async"
)
_BASE_BYTES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4}
_WIDEST_BYTES = 16
_NARROW = re.compile(
    r"\b(?:__half2?|half2?(?=\s+[A-Za-z_]\w*\s*[=;({\[,)])|__nv_bfloat162?|nv_bfloat162?|__float2half\w*|__float2bfloat16\w*|__float22half2\w*|"
    r"__nv_fp8\w*|__float_to_tf32|tf32|wmma|_Float16)\b|\bnvcuda::wmma\b|\bmma\.sync\b|\bwgmma\b|cvt\.\w*\.?f16|\.tf32\b"
)
_FAST = re.compile(
    r"\b(?:__expf|__exp10f|__logf|__log2f|__log10f|__sinf|__cosf|__tanf|__powf|__fdividef|__sincosf|"
    r"__tanhf)\b|\.approx\b"
)
_DEVICE_VARIABLE = re.compile(
    r"__(?:device|managed)__\s+(?P<type>[^;(){}=]*?)\b(?P<name>\w+)\s*(?:\[[^;{}]*\]\s*)?(?:=|;|\{)"
)


def own_text(source: Source) -> str:
    """The kernel's device text: no comments, no other kernels than those that it names."""
    text = source.device_text
    kernels = kernels_of(text)
    mine = [kernel for kernel in kernels if kernel.qualified_name == source.kernel.qualified_name]
    return without_comments(without_kernels(text, kernels, mine) if mine else text)


def code_notes(text: str, compiled: Compiled | None) -> tuple[str, ...]:
    """What a user should know of a kernel whose results are right, from `own_text` and the device code."""
    if compiled is not None and compiled.cubin:
        # The device code knows better which of the text's functions the kernel calls.
        prints, allocates = (symbol in called(compiled) for symbol in ("vprintf", "malloc"))
    else:
        prints = re.search(r"\bprintf\s*\(", text) is not None
        allocates = re.search(r"\bmalloc\s*\(|\bnew\b", text) is not None
    notes = []
    if prints:
        notes.append("uses printf")
    if allocates:
        notes.append("allocates memory on the device")
    if _LAUNCH.search(text):
        notes.append("launches kernels of its own")
    if re.search(r"\b(?:asm|__asm__)\b", text):
        notes.append("has inline PTX")
    if reads_clock(text):
        notes.append("reads the clock")
    if names := _variables(text, b"" if compiled is None else compiled.cubin):
        notes.append("has the device variable" + ("s " if len(names) > 1 else " ") + ", ".join(f"`{n}`" for n in names))
    return tuple(notes)


def _variables(text: str, cubin: bytes) -> list[str]:
    """Device variables that the kernel's text can reach; those that the compiler has dropped are in no kernel's way."""
    declared = [match["name"] for match in _DEVICE_VARIABLE.finditer(text) if not _constant(match["type"])]
    kept = [variable.name for variable in writable_variables(cubin)]
    return [name for name in dict.fromkeys(declared) if not kept or name in kept]


def reads_clock(text: str) -> bool:
    """The kernel can tell the time, and so one run from another."""
    return _CLOCK.search(text) is not None


def has_atomics(text: str) -> bool:
    """Results may honestly depend on the order of the threads."""
    return _ATOMICS.search(text) is not None


def own_stream(text: str) -> str | None:
    """A launch that goes to another stream than the kernel's own, as written; None when there is none."""
    if (named := _NAMED_STREAM.search(text)) is not None:
        return named[0]
    for match in _LAUNCH.finditer(text):
        if _top_level_commas(match["inside"]) == 3:
            return match[0]
    return None


def vector_bytes(text: str, kernel: Kernel, template: Mapping[str, str]) -> int:
    """How wide the vectors are that the kernel reads its buffers of numbers by; 0 when it reads number by number.

    A kernel with parameters that are vectors says itself what their pointers must be aligned to, and gives 0 too.
    """
    elements = [
        element_of(template.get(parameter.element, parameter.element))
        for parameter in kernel.parameters
        if parameter.pointer
    ]
    if any(element is None or element.lanes > 1 for element in elements):
        return 0
    return max((_cast_bytes(match) for match in _VECTOR_CAST.finditer(text)), default=0)


def _cast_bytes(match: re.Match[str]) -> int:
    if match["lanes"] is None:
        return 4 if "2" in match[0] else _WIDEST_BYTES
    lanes = int(match["lanes"])
    # Three numbers are read one by one.
    return 0 if lanes in (1, 3) else min(_WIDEST_BYTES, lanes * _BASE_BYTES.get(match["base"], 8))


def narrow_word(text: str, accepted: str | None) -> str | None:
    """The first word that gives digits of a float away, which the accepted kernel's text does not have."""
    for pattern in (_NARROW, _FAST):
        had = set() if accepted is None else {match[0] for match in pattern.finditer(accepted)}
        for match in pattern.finditer(text):
            if match[0] not in had:
                return match[0]
    return None


def single_interface(kernel: Kernel, template: Mapping[str, str]) -> bool:
    """Some buffer holds floats or doubles, and none holds anything shorter: shorter numbers inside lose digits."""
    floats = [
        element
        for parameter in kernel.parameters
        if parameter.pointer
        and (element := element_of(template.get(parameter.element, parameter.element))) is not None
        and element.kind is Kind.FLOAT
    ]
    return bool(floats) and all(element.storage.itemsize >= 4 for element in floats)


def kept_state(device_text: str) -> str | None:
    """The first device variable that device code writes or may write: what it holds outlives a launch.

    A write through a pointer or a reference cannot be followed, so a variable whose address is taken counts as written.
    """
    text = without_comments(device_text)
    for match in _DEVICE_VARIABLE.finditer(text):
        if _constant(match["type"]):
            continue
        name = rf"(?<![\w.>]){re.escape(match['name'])}\b"
        rest = text[: match.start()] + text[match.end() :]
        element = rf"{name}[\s)]*(?:\[[^\]]*\]\s*|\.\w+\s*|\)\s*)*"
        patterns = [
            rf"{element}(?:[-+*/%&|^]?=(?!=)|<<=|>>=|\+\+|--)",
            rf"(?:\+\+|--)[\s(]*{name}",
            rf"(?:[(,=?:{{]|\breturn\b)\s*&[\s(]*{name}",  # its address
            rf"&\s*\w+\s*[=({{][\s(]*{name}",  # a reference to it
            rf"\batomic\w*\s*\([\s(]*{name}",
        ]
        if "[" in match.group():
            # Without a subscript an array is a pointer, which is an address like any other.
            patterns.append(rf"(?<!sizeof\()(?<!sizeof ){name}(?!\s*\[)")
        if any(re.search(pattern, rest) for pattern in patterns):
            return match["name"]
    return None


def _constant(spelling: str) -> bool:
    return re.search(r"\b(const|constexpr|__constant__)\b", spelling) is not None


def _top_level_commas(text: str) -> int:
    depth = commas = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        commas += character == "," and depth == 0
    return commas
