"""Device text as the host's C++ compiler can take it: a light, lexical rewriting that keeps every line where it is.

A macro can make most of CUDA's words plain C++, but not all: a variable marked `__device__` has to go to a section that
is not poisoned, `extern __shared__` arrays become pointers, and the bodies of functions that the kernel never reaches
are emptied, because they may hold what no host compiler reads (inline PTX).
"""

import bisect
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from attrs import evolve, field, frozen

from dice_lsp.records import Compiled
from dice_lsp.source.slice import slice_together
from dice_lsp.source.tokens import Kind, lex
from dice_lsp.worker.launch import Source

MAIN = "text/a/b/c/kernel.cu.cpp"
FILE_NAME = "kernel.cu"
_STAGED = "text/include"
_MAX_HEADERS = 64
_MAX_HEADER_BYTES = 1 << 20


class Unsupported(Exception):
    """The text needs something the emulation does not have; the message is one phrase for the user."""


@frozen
class HostText:
    """What to compile."""

    files: dict[str, str]
    """Path below the folder of the build -> content; `MAIN` is compiled, `text/include` is searched first."""
    main: str
    vectors: bool
    """The code uses vector types or casts of pointers, so buffers must be aligned as on a GPU (16 bytes)."""
    shared_arrays: frozenset[str]
    """Names of static shared arrays, to tell an overrun of one from that of a local array."""
    dropped: tuple[str, ...] = ()
    """Includes that were taken out because the host has nothing in their place."""
    notes: tuple[str, ...] = ()


@frozen
class _Function:
    name: str
    header: int
    open: int
    close: int
    kernel: bool = False


@frozen
class _Masked:
    """A text and the same text with comments, strings and directives blanked, offsets kept."""

    text: str
    code: str
    functions: tuple[_Function, ...]
    directives: tuple[tuple[int, int], ...]
    starts: tuple[int, ...] = field()

    def inside(self, offset: int) -> _Function | None:
        at = bisect.bisect_right(self.starts, offset) - 1
        if at >= 0 and self.functions[at].open < offset <= self.functions[at].close:
            return self.functions[at]
        return None


_UNSUPPORTED = (
    (r"\b(?:asm|__asm|__asm__)\b", "inline PTX is"),
    (r"\b(?:wmma|nvcuda|mma_sync|load_matrix_sync|ldmatrix)\b", "tensor core operations (wmma, mma) are"),
    (r"\b(?:tex[123]D\w*|tex1Dfetch|texCubemap\w*|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t|texture)\b",
     "textures and surfaces are"),
    (r"\b(?:memcpy_async|__pipeline_\w+|cp_async\w*|make_pipeline|cuda_pipeline|wait_prior)\b|\bcuda\s*::\s*(?:pipeline|barrier|memcpy_async|ptx)\b",
     "asynchronous copies (cp.async, TMA, cuda::pipeline) are"),
    (r"\b(?:this_cluster|cluster_group|__cluster_dims__|__clusterDim\w*|cluster_sync)\b", "thread block clusters are"),
    (r"<[ \t]*<[ \t]*<", "dynamic parallelism is"),
    (r"\b(?:cudaDeviceSynchronize|cudaLaunchKernel\w*|cudaGraphLaunch)\b", "dynamic parallelism is"),
    (r"\b(?:cub|thrust|cute|cutlass)\s*::", "CUB, Thrust and CUTLASS are"),
    (r"\bcuda\s*::\s*(?:std|atomic\w*|ptx|device)\b", "libcu++ is"),
    (r"\b(?:curand\w*|cublas\w*)\b", "device libraries such as cuRAND are"),
    (r"\b(?:this_grid\s*\(\s*\)\s*\.\s*sync|this_multi_grid|multi_grid_group)\b", "grid-wide synchronisation is"),
    (r"\bstatic\s+(?!const\b|constexpr\b|__shared__\b)[\w\s:<>,*&]*[\w>]\s*[=;{\[]", "static variables in device functions are"),
    (r"\blong\s+double\b", "`long double`, which has another size on a GPU, is"),
    (r"\b(?:__GNUC__|__GNUG__|__clang__|__VERSION__|__OPTIMIZE__|__GLIBC\w*|__ELF__|__PIC__|__SANITIZE\w*|__builtin_return_address|"
     r"__builtin_ia32\w*|__builtin_alloca\w*|__attribute__|syscall|__FILE__|__PRETTY_FUNCTION__|__func__|__FUNCTION__|__COUNTER__|"
     r"__DATE__|__TIME__|__TIMESTAMP__|__STDC_HOSTED__|__STDCPP_\w+)\b", "code that looks at the host's compiler is"),
)  # fmt: skip
_UNSUPPORTED_PATTERNS = tuple((re.compile(pattern), words) for pattern, words in _UNSUPPORTED)
_CONDITION = re.compile(r"\s*#\s*(?P<word>ifdef|ifndef|if|elif|elifdef|elifndef)\b(?P<rest>[\s\S]*)")
_DEFINES = re.compile(r"\s*#\s*(?:define|undef)\s+([A-Za-z_]\w*)")
_SHARED_MACROS = frozenset(
    "__CUDA_ARCH__ __CUDACC__ __CUDACC_RTC__ __NVCC__ __cplusplus __LP64__ NDEBUG __CUDACC_VER_MAJOR__ __CUDACC_VER_MINOR__ "
    "CUDART_VERSION __CUDA_NO_HALF_OPERATORS__ __CUDA_NO_HALF_CONVERSIONS__ __CUDA_NO_HALF2_OPERATORS__ "
    # Of other systems and compilers, which neither of the two has on this one.
    "_WIN32 _WIN64 _MSC_VER __APPLE__ __MINGW32__ __CYGWIN__ __INTEL_COMPILER __HIP__ __HIPCC__ __HIP_DEVICE_COMPILE__ "
    "__HIP_PLATFORM_AMD__ __HIP_PLATFORM_HCC__".split()
)
"""Reserved names that a text may ask about: the device's compiler and the host's answer alike."""
_OF_THE_LIBRARY = re.compile(
    r"(?:U?(?:CHAR|SHRT|INT|LONG|LLONG|INT\d+|INTMAX|INTPTR|SIZE|PTRDIFF)|SCHAR|SSIZE|FLT|DBL|LDBL|CHAR)_\w+|M_\w+|FP_\w+|NULL|EOF|"
    r"INFINITY|NAN|HUGE_VAL\w*|RAND_MAX|EXIT_\w+|BUFSIZ|SEEK_\w+|CLOCK\w*|\w+_ENDIAN|PATH_MAX|MATH_\w+|linux|unix|i386|assert"
)
"""Macros of the C library's headers, which the host has and device code without includes has not."""
_OWN_NAMES = re.compile(r"\bdice_emu\w*|\bDICE_EMU\w*")
_UNSUPPORTED_HEADERS = re.compile(
    r"^(?:cub/|thrust/|cute/|cutlass/|cuda/|mma\.h|cuda_fp8|cuda_fp6|cuda_fp4|cuda_pipeline|cooperative_groups/memcpy_async|"
    r"curand|cublas|cudnn|cufft|nvtx|crt/|texture_|surface_|cooperative_groups/details|cudaTypedefs|cuda_awbarrier)"
)
_NARROW_TYPES = re.compile(r"\b(?:__half2?|__nv_bfloat16\w*|nv_bfloat16\w*)\b")
_VECTORS = re.compile(
    r"\b(?:u?(?:char|short|int|long|longlong)|float|double|(?:__)?half|__nv_bfloat16)[248]\b|\breinterpret_cast\b|"
    r"\(\s*(?:const\s+)?\w+\s*\*\s*\)"
)
_DOUBLE_HINDRANCES = re.compile(
    r"\b(?:float[1234]|make_float[1234]|(?:__)?half2?|__nv_bfloat16\w*|nv_bfloat16\w*|__\w*(?:float_as_|as_float)\w*|"
    r"reinterpret_cast|atomicCAS|__float2half\w*|memcpy)\b"
)
_EMULATED = frozenset(
    str(path.relative_to(Path(__file__).parent / "emulation" / "include"))
    for path in (Path(__file__).parent / "emulation" / "include").rglob("*.h*")
)
_STANDARD = re.compile(r"[a-z_0-9]+(?:\.h)?|sys/[a-z]+\.h")
_INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<open>[<"])(?P<name>[^>"\n]+)[>"]')
_UNWANTED_DIRECTIVE = re.compile(r"\s*#\s*(?:include|include_next|import|embed|pragma\s+(?:GCC|clang|STDC))\b")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EDGE = re.compile(r"[;{}]")
_BRACE = re.compile(r"[{}]")
_EXTERN_SHARED = re.compile(r"\bextern\b[^;{}]*?\b__shared__\b[^;{}]*;|\b__shared__\s+extern\b[^;{}]*;")
_ATTRIBUTE_WORDS = frozenset(
    ("__align__", "__launch_bounds__", "__attribute__", "alignas", "decltype", "__declspec", "noexcept", "requires",
     "__builtin_align__", "__maxnreg__", "__cluster_dims__", "__block_size__", "explicit", "throw")
)  # fmt: skip
_QUALIFIER = re.compile(r"\b(?:__device__|__constant__|__managed__)\b")
_FLOAT_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?[fF]\b")


def prepare_text(source: Source) -> HostText:
    """The files to compile for a kernel or a reference function. Raises `Unsupported` for what cannot be emulated."""
    source = evolve(source, include_dirs=(*source.include_dirs, *_values(source.flags, "-I", "--include-path")))
    found: dict[str, _Header] = {}
    standard: list[str] = []
    virtual = PurePosixPath(MAIN).parent
    staged = _find_headers(source, source.device_text, Path(source.path).parent, virtual, found, standard)
    before = "".join(f'#include "{os.path.relpath(path, Path(source.path).parent)}"\n' for path in source.pre_includes)
    if len(_find_headers(source, before, Path(source.path).parent, virtual, found, standard)) < len(
        source.pre_includes
    ):
        raise Unsupported("a header that the build includes first and that lies elsewhere is not supported on the host")
    wanted = source.function.split("<")[0].split("::")[-1].strip() if source.function else source.kernel.name
    # Headers hold host code too, and what it needs is not here.
    texts = [source.device_text, *(header.text for header in found.values())]
    if found:
        keep = (wanted,) if source.function is not None else ()
        texts = [piece.text for piece in slice_together(texts, keep)]
    masked = _mask(texts[0])
    for text in map(_mask, texts):
        if _OWN_NAMES.search(text.code) or any(_OWN_NAMES.search(text.text, *span) for span in text.directives):
            raise Unsupported("names that begin with dice_emu belong to the host emulation")
        if re.search(r"\b(?:asm|__asm|__asm__)\b", _outside(text)):
            raise Unsupported("inline PTX outside of functions is not supported on the host")
    reached = _reach(masked, wanted)
    reached_text = _reached_text(masked, reached)
    if source.function is None:
        for pattern, words in _UNSUPPORTED_PATTERNS:
            if pattern.search(reached_text):
                raise Unsupported(f"{words} not supported on the host")
        emptied = frozenset(f.open for i, f in enumerate(masked.functions) if i not in reached)
        others = [(_mask(text), frozenset[int]()) for text in texts[1:]]
        _refuse_questions([(masked, emptied), *others], _values(source.flags, "-D", "--define-macro"))
    if source.fp64:
        hindrance = _DOUBLE_HINDRANCES.search(reached_text)
        if hindrance:
            raise Unsupported(f"double precision is not supported for code with {hindrance.group()}")
    dropped: list[str] = []
    files = {
        header.place: f'#line 1 "{header.name}"\n' + _rewrite(_mask(text), None, source.fp64, header.staged, dropped)
        for header, text in zip(found.values(), texts[1:], strict=True)
    }
    body = _rewrite(masked, reached, source.fp64, staged, dropped)
    # Headers of libraries that are not here bring these types along on a GPU.
    narrow = any(_NARROW_TYPES.search(text) for text in texts)
    files[MAIN] = (
        _prologue(source, standard, narrow) + before + f'#line 1 "{FILE_NAME}"\n' + body + _epilogue(source, masked)
    )
    shared = frozenset(
        name
        for statement in re.finditer(r"\b__shared__\b([^;{}]*)", masked.code)
        for name in re.findall(r"(\w+)\s*\[", statement[1])
    )
    return HostText(
        files, MAIN, bool(_VECTORS.search(reached_text)), shared, tuple(dict.fromkeys(dropped)), _notes(masked, reached_text)
    )  # fmt: skip


def _refuse_questions(texts: Sequence[tuple[_Masked, frozenset[int]]], flags: Iterator[str]) -> None:
    """Raises `Unsupported` when a condition asks about a macro that the device and the host may answer differently.

    Code could tell by it that it is emulated, and be right there alone. What the text defines itself is its own matter:
    `#ifndef M_PI` before `#define M_PI` is how a constant is made sure of. Beside each text stands where its functions
    begin that the kernel does not reach.
    """
    own = {flag.partition("=")[0].partition("(")[0] for flag in flags}
    for text, _ in texts:
        own |= {match[1] for start, end in text.directives if (match := _DEFINES.match(text.text[start:end]))}
    for text, emptied in texts:
        for condition in _conditions_that_matter(text, emptied):
            for name in _NAME.findall(condition):
                if name in own or name in _SHARED_MACROS:
                    continue
                if name.startswith("__") or re.match("_[A-Z]", name) or _OF_THE_LIBRARY.fullmatch(name):
                    raise Unsupported(f"code that asks whether {name} is defined is not supported on the host")


def _conditions_that_matter(text: _Masked, emptied: frozenset[int]) -> Iterator[str]:
    """The conditions of `#if` and its kin around code or definitions of a text, without comments."""
    open_groups: list[tuple[int, list[str]]] = []
    for start, end in text.directives:
        if (around := text.inside(start)) is not None and around.open in emptied:
            continue
        directive = text.text[start:end]
        condition = _CONDITION.match(directive)
        rest = re.sub(r"//[^\n]*|/\*[\s\S]*?\*/", " ", condition["rest"]) if condition else ""
        if condition and condition["word"].startswith("if"):
            open_groups.append((end, [rest]))
        elif condition and open_groups:
            open_groups[-1][1].append(rest)
        elif open_groups and re.match(r"\s*#\s*endif\b", directive):
            begun, conditions = open_groups.pop()
            inside = [text.text[s:e] for s, e in text.directives if begun <= s < start]
            if text.code[begun:start].strip() or any(map(_DEFINES.match, inside)):
                yield from conditions


def _prologue(source: Source, standard: list[str], narrow: bool) -> str:
    lines = []
    if source.function is not None:
        # The slice keeps no host headers, and a reference function may use the standard library's everyday parts.
        everyday = ("algorithm", "array", "cmath", "cstdint", "cstdlib", "cstring", "numeric", "vector")
        for name in dict.fromkeys((*everyday, *standard)):
            lines += [f"#if __has_include(<{name}>)", f"#include <{name}>", "#endif"]
    else:
        arch = re.search(r"\d+", source.compiled.arch if source.compiled else "")
        lines += [
            f"#define __CUDA_ARCH__ {int(arch.group()) * 10 if arch else 900}",
            "#define __CUDACC_RTC__ 1",
            *_versions(source.compiled),
            "#define printf dice_emu_printf",
            "#define malloc(size) dice_emu_malloc(size)",
            "#define free(address) dice_emu_free(address)",
        ]
    if narrow or source.fp64:
        # What the user's text includes must not be read with `float` as another word for `double`.
        lines.append("#include <narrow_types.h>")
    if source.fp64:
        lines.append("#include <cuComplex.h>")
    lines += ["#define __CUDACC__ 1", "#define __NVCC__ 1"]
    if source.fp64:
        lines.append('#include "double.h"')
    for word in _values(source.flags, "-D", "--define-macro"):
        name, _, value = word.partition("=")
        if re.fullmatch(r"[A-Za-z_]\w*(?:\([\w, ]*\))?", name) and "\n" not in value:
            lines.append(f"#define {name} {value if '=' in word else '1'}")
    return "\n".join(lines) + "\n"


def _versions(compiled: Compiled | None) -> list[str]:
    """The device compiler's version, for texts that ask for it."""
    version = re.search(r"(\d+)\.(\d+)", compiled.compiler if compiled else "")
    if version is None:
        return []
    major, minor = int(version[1]), int(version[2])
    return [
        f"#define __CUDACC_VER_MAJOR__ {major}",
        f"#define __CUDACC_VER_MINOR__ {minor}",
        f"#define CUDART_VERSION {1000 * major + 10 * minor}",
    ]


def _values(flags: Sequence[str], short: str, long: str) -> Iterator[str]:
    """The values of an option, written `-Dx`, `-D x`, `--define-macro=x` or `--define-macro x`."""
    rest = iter(flags)
    for flag in rest:
        if flag in (short, long):
            yield next(rest, "")
        elif flag.startswith(f"{long}="):
            yield flag.removeprefix(f"{long}=")
        elif flag.startswith(short):
            yield flag.removeprefix(short)


def standard_flag(flags: Sequence[str]) -> str:
    """The C++ standard to compile for: the flags', but C++17 at least, which is the device compiler's default."""
    for flag in reversed(flags):
        match = re.fullmatch(r"--?std[= ]c\+\+(20|23|2a|2b)", flag)
        if match:
            return f"-std=c++{match[1]}"
    return "-std=c++17"


def _epilogue(source: Source, masked: _Masked) -> str:
    if source.function is not None:
        name, end, returns_early = source.function, "__bss_start", False
        if "<" not in name:
            parameters = _template_parameters(masked, name.rpartition("::")[2])
            if parameters and all(parameter in source.template for parameter in parameters):
                name += f"<{', '.join(source.template[parameter] for parameter in parameters)}>"
    else:
        name, end = source.kernel.qualified_name, "_end"
        values = []
        for parameter in source.kernel.template:
            if parameter not in source.template:
                break
            values.append(source.template[parameter])
        if source.kernel.template:
            name += f"<{', '.join(values)}>"
        wanted = [function for function in masked.functions if function.name == source.kernel.name]
        returns_early = any(re.search(r"\breturn\s*;", masked.code[f.open : f.close]) for f in wanted)
    entry = f"&{name}" if source.function is not None else f"dice_emu::kernel(&{name})"
    return f'\n#line 1 "entry"\nDICE_EMU_MODULE({end}, {int(returns_early)}, {entry})\n'


def _template_parameters(masked: _Masked, name: str) -> list[str]:
    for function in masked.functions:
        if function.name == name:
            begin = max(masked.code.rfind(c, 0, function.header) for c in ";{}") + 1
            match = re.search(r"\btemplate\s*<([^<>]*)>", masked.code[begin : function.header])
            if match:
                return [(_NAME.findall(part.split("=")[0]) or [""])[-1] for part in match[1].split(",")]
    return []


def _notes(masked: _Masked, reached_text: str) -> tuple[str, ...]:
    notes = []
    if re.search(r"\bprintf\s*\(", reached_text):
        notes.append("what the kernel prints is dropped")
    for match in re.finditer(r"\b__constant__\b([^;={}]*);", masked.code):
        names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[[^\]]*\]", "", match[1]))
        if names and re.search(rf"\b{names[-1]}\b", reached_text):
            notes.append(f"constant memory {names[-1]} is zero, because no host code is run to set it")
    return tuple(notes)


def include_names(text: str) -> list[tuple[str, bool, int, int]]:
    """Includes of a text: name, whether quoted, start and end of the directive."""
    return [
        (m["name"].strip(), m["open"] == '"', token.start, token.end)
        for token in lex(text)
        if token.kind is Kind.DIRECTIVE and (m := _INCLUDE.match(text[token.start : token.end]))
    ]


def _blank(text: str) -> str:
    return re.sub(r"[^\r\n]", " ", text)


def _mask(text: str) -> _Masked:
    parts: list[str] = []
    directives: list[tuple[int, int]] = []
    for token in lex(text):
        piece = text[token.start : token.end]
        if token.kind is Kind.DIRECTIVE:
            directives.append((token.start, token.end))
        keep = token.kind not in (Kind.DIRECTIVE, Kind.COMMENT, Kind.STRING, Kind.CHARACTER)
        parts.append(piece if keep else _blank(piece))
    code = "".join(parts)
    functions = tuple(_functions(code))
    return _Masked(text, code, functions, tuple(directives), tuple(f.open for f in functions))


def _functions(code: str) -> Iterator[_Function]:
    """Functions with a body, outermost only, wherever they stand (namespaces and classes included)."""
    position = 0
    while match := _EDGE.search(code, position):
        at = match.start()
        head = code[position:at]
        position = at + 1
        if match.group() != "{":
            continue
        name = _function_name(head)
        if name is not None:
            close = _closing(code, at)
            yield _Function(name[0], at - len(head) + name[1], at, close, "__global__" in head)
            position = close + 1


def _closing(code: str, at: int) -> int:
    depth = 0
    for match in _BRACE.finditer(code, at):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


def _function_name(head: str) -> tuple[str, int] | None:
    """The name that stands before a parameter list, and its offset; None when `{` does not open a function's body."""
    if re.match(
        r"\s*(?:template\s*<[^{}]*>\s*)?(?:struct|class|union|enum|namespace)\b(?![^(]*\))", head
    ) and "(" not in re.sub(r"\b(?:alignas|__align__|__attribute__)\s*\([^{}]*?\)", "", head):
        return None
    depth, position, last = 0, 0, None
    for match in re.finditer(r"[A-Za-z_]\w*|[()=]", head):
        word = match.group()
        if word == "(":
            if depth == 0 and last is not None and last.group() not in _ATTRIBUTE_WORDS:
                return (last.group(), last.start())
            depth += 1
        elif word == ")":
            depth -= 1
        elif word == "=":
            if depth == 0 and "template" not in head[:position]:
                return None
        elif depth == 0:
            last = match
        position = match.end()
    return None


def _outside(masked: _Masked) -> str:
    """The code around the functions: their bodies and their own names are left out."""
    pieces, position = [], 0
    for function in masked.functions:
        pieces += [
            masked.code[position : function.header],
            masked.code[function.header + len(function.name) : function.open],
        ]
        position = function.close
    pieces.append(masked.code[position:])
    return " ".join(pieces)


def _reach(masked: _Masked, name: str) -> frozenset[int]:
    """Indices of the functions that `name` may call, by the identifiers that its text and the text around hold."""
    by_name: dict[str, list[int]] = {}
    for index, function in enumerate(masked.functions):
        by_name.setdefault(function.name, []).append(index)
    macros: dict[str, str] = {}
    for start, end in masked.directives:
        define = re.match(r"\s*#\s*define\s+(\w+)([\s\S]*)", masked.text[start:end])
        if define:
            macros[define[1]] = macros.get(define[1], "") + define[2]
    outside = _outside(masked)
    todo = set(_NAME.findall(outside)) | {name, "operator"}
    seen: set[str] = set()
    reached: set[int] = set()
    while todo:
        word = todo.pop()
        if word in seen:
            continue
        seen.add(word)
        if word in macros:
            todo |= set(_NAME.findall(macros[word])) - seen
        for index in by_name.get(word, ()):
            function = masked.functions[index]
            if function.kernel and word != name:
                continue
            reached.add(index)
            todo |= set(_NAME.findall(masked.code[function.open : function.close])) - seen
    return frozenset(reached)


def _reached_text(masked: _Masked, reached: frozenset[int]) -> str:
    bodies = [masked.code[masked.functions[i].header : masked.functions[i].close + 1] for i in sorted(reached)]
    text = "\n".join(bodies)
    names = set(_NAME.findall(text))
    used = []
    for start, end in masked.directives:
        define = re.match(r"\s*#\s*define\s+(\w+)", masked.text[start:end])
        inside = masked.inside(start)
        if (define and define[1] in names) or (inside is not None and masked.functions.index(inside) in reached):
            used.append(re.sub(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*', "", masked.text[start:end]))
    return text + "\n" + "\n".join(used)


def _declares_variable(code: str, at: int) -> int | None:
    """Where the declarator of a qualified variable ends, or None if the qualifier belongs to a function."""
    depth, angle = 0, 0
    last = ""
    for match in re.compile(r"[A-Za-z_]\w*|[()<>;={\[]").finditer(code, at):
        word = match.group()
        if word == "operator" and depth == 0:
            return None
        if word == "(":
            if depth == 0 and angle == 0 and last not in _ATTRIBUTE_WORDS:
                return None
            depth += 1
        elif word == ")":
            depth -= 1
        elif word == "<":
            angle += 1
        elif word == ">":
            angle -= 1
        elif word in ";={[":
            if depth == 0 and angle <= 0:
                return match.start()
        last = word
    return None


def _rewrite(
    masked: _Masked, keep: frozenset[int] | None, fp64: bool, staged: frozenset[tuple[str, bool]], dropped: list[str]
) -> str:
    code, text = masked.code, masked.text
    edits: list[tuple[int, int, str]] = []
    emptied: set[_Function] = set()
    if keep is not None:
        for index, function in enumerate(masked.functions):
            if index not in keep and function.close > function.open + 1:
                emptied.add(function)
                begin = max(code.rfind(c, 0, function.header) for c in ";{}") + 1
                head = code[begin : function.open]
                # A declaration costs nothing; a member defined outside its class or an initialiser list cannot be one.
                if "::" in head or re.search(r"\)[^()]*:", head):
                    edits.append((function.open + 1, function.close, ""))
                else:
                    edits.append((function.open, function.close + 1, ";"))

    for match in _EXTERN_SHARED.finditer(code):
        around = masked.inside(match.start())
        if around not in emptied:
            edits.append((*match.span(), _dynamic_shared(match.group(), around is not None)))
    for match in _QUALIFIER.finditer(code):
        if masked.inside(match.start()) is not None:
            continue
        end = _declares_variable(code, match.end())
        if end is None:
            continue
        begin = max(code.rfind(c, 0, match.start()) for c in ";{}") + 1
        statement = code[begin:end]
        if re.search(r"\bextern\b", statement):
            edits.append((*match.span(), ""))
            continue
        constant = re.search(r"\b(?:const|constexpr)\b", statement)
        edits.append((*match.span(), "DICE_EMU_DEVICE_CONSTANT" if constant else "DICE_EMU_DEVICE_VARIABLE"))
    for match in re.finditer(
        r"\b__noinline__\b|\bstatic\s+(?=(?:volatile\s+)?__shared__\b)|(?<=__shared__)\s+static\b", code
    ):
        edits.append((*match.span(), ""))
    for start, end in masked.directives:
        # What would let a text read other files or change the compiler's mind about arithmetic.
        if _UNWANTED_DIRECTIVE.match(text, start, end) and not _INCLUDE.match(text[start:end]):
            edits.append((start, end, _blank(text[start:end])))
    for name, quoted, start, end in include_names(text):
        if name in _EMULATED or (name, quoted) in staged:
            continue
        # The standard library stands in the precompiled header or before the text; anything else has no place here.
        if quoted or not _STANDARD.fullmatch(name):
            dropped.append(name)
        edits.append((start, end, ""))
    if fp64:
        for token in lex(text):
            if token.kind is Kind.NUMBER and _FLOAT_LITERAL.fullmatch(text, token.start, token.end):
                edits.append((token.start, token.end, f"double({text[token.start : token.end]})"))
            elif token.kind is Kind.DIRECTIVE and re.match(r"\s*#\s*define\b", text[token.start : token.end]):
                new = _FLOAT_LITERAL.sub(lambda m: f"double({m.group()})", text[token.start : token.end])
                edits.append((token.start, token.end, new))
    edits.sort(key=lambda edit: edit[:2])
    parts, position = [], 0
    for start, end, new in edits:
        if start < position:
            continue
        lost = text.count("\n", start, end) - new.count("\n")
        parts += [text[position:start], new, "\n" * lost]
        position = end
    parts.append(text[position:])
    return "".join(parts)


def _dynamic_shared(declaration: str, in_function: bool) -> str:
    plain = re.sub(r"\b(?:__align__|alignas|__builtin_align__)\s*\((?:[^()]|\([^()]*\))*\)|__attribute__\s*\(\(.*?\)\)|\[\[.*?\]\]",
                   " ", declaration)  # fmt: skip
    plain = re.sub(r"\b(?:extern|__shared__)\b", " ", plain).rstrip(";").strip()
    match = re.fullmatch(r"(?P<type>[\s\S]+?)\b(?P<name>\w+)\s*\[[^\]]*\]\s*(?P<dims>(?:\[[^\]]*\]\s*)*)", plain)
    if match is None:
        raise Unsupported("an extern __shared__ declaration of this form is not supported on the host")
    kind, name, dims = " ".join(match["type"].split()), match["name"], match["dims"].strip()
    if not in_function:
        return f"static const dice_emu::dynamic_array<{kind}{dims}> {name};"
    if dims:
        return f"{kind} (*const {name}){dims} = reinterpret_cast<{kind} (*){dims}>(dice_emu_dynamic);"
    return f"{kind}* const {name} = reinterpret_cast<{kind}*>(dice_emu_dynamic);"


@frozen
class _Header:
    place: str
    name: str
    text: str
    staged: frozenset[tuple[str, bool]]


def _find_headers(
    source: Source, text: str, real: Path, virtual: PurePosixPath, found: dict[str, _Header], standard: list[str]
) -> frozenset[tuple[str, bool]]:
    """Read the user's headers and give them places where the compiler finds them instead of the real ones.

    Returns the includes of this text (name, quoted) that were found; those of the standard library go to `standard`.
    """
    staged: set[tuple[str, bool]] = set()
    for name, quoted, _, _ in include_names(text):
        if name in _EMULATED or PurePosixPath(name).is_absolute():
            continue
        path, place = None, ""
        if quoted and (real / name).is_file():
            path, place = real / name, os.path.normpath(virtual / name)
        elif not _UNSUPPORTED_HEADERS.match(name):
            for directory in source.include_dirs:
                if (Path(directory) / name).is_file():
                    path, place = Path(directory) / name, os.path.normpath(f"{_STAGED}/{name}")
                    break
        if path is None:
            if not quoted and _STANDARD.fullmatch(name):
                standard.append(name)
            continue
        if not place.startswith("text/") or len(found) >= _MAX_HEADERS or path.stat().st_size > _MAX_HEADER_BYTES:
            continue
        staged.add((name, quoted))
        if place not in found:
            inner = path.read_text(encoding="utf-8", errors="surrogateescape")
            found[place] = _Header(place, path.name, inner, frozenset())
            below = _find_headers(source, inner, path.parent, PurePosixPath(place).parent, found, standard)
            found[place] = _Header(place, path.name, inner, below)
    return frozenset(staged)
