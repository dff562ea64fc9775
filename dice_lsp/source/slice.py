"""The device part of a CUDA text: everything a kernel needs, nothing of the host, at the same lines and columns.

NVRTC takes device code only, and host code of a text that a model wrote is never executed. So a text is cut into its
top-level items; device functions, device variables and macros stay, and of the rest only what those name, directly
or through others. What does not stay is overwritten with spaces, so that every line and column of the slice is one
of the document.

Nothing here raises on bad code: an item that cannot be read stays when it may belong to device code, so that a
compiler complains about it instead of it being lost.
"""

import functools
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

import tree_sitter
import tree_sitter_cuda
from attrs import frozen

from dice_lsp.records import Kernel
from dice_lsp.source.headers import read_header
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.macros import Invocation, Macro, invocations
from dice_lsp.source.skeleton import Skeleton
from dice_lsp.source.tokens import BLOCK_COMMENT, LINE_COMMENT, QUOTED, RAW_STRING

DEVICE_WORDS = frozenset({"__global__", "__device__", "__constant__", "__shared__", "__managed__", "__grid_constant__"})
_DEVICE_NAMES = DEVICE_WORDS | {"threadIdx", "blockIdx", "blockDim", "gridDim", "__syncthreads", "__syncwarp"}

_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r"[ \t\v\f]*(?:#|%:|\?\?=)[ \t\v\f]*(include_next|include|import|embed)\b[ \t\v\f]*(.*)")
_PLAIN_TARGET = re.compile(r"<([^<>\"\n]+)>|\"([^\"\n]+)\"")
_CONDITIONAL = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b")
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(\([^)]*\))?(.*)", re.DOTALL)
_PRAGMA = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+(\w+)")
_KEPT_PRAGMAS = frozenset(
    {"once", "unroll", "nounroll", "push_macro", "pop_macro", "diag_suppress", "diag_default", "pack"}
    | {"nv_diag_suppress", "nv_diag_default", "nv_diagnostic", "nv_exec_check_disable"}
)


class IncludeKind(StrEnum):
    """What becomes of an `#include` in a slice."""

    DEVICE = "device"
    """A header that device code can be compiled with (cuda_fp16.h, cub/block/..., cuda/std/...): the line stays."""
    STANDARD = "standard"
    """A C or C++ standard header: dropped; the compiler's prelude offers what device code may use of it."""
    BUILT_IN = "built_in"
    """A CUDA header whose device part the compiler brings itself (cuda_runtime.h): dropped."""
    HOST = "host"
    """A header known to be for the host (thrust, torch, helper_cuda.h): dropped."""
    USER = "user"
    """Any other header: the line stays, and whoever compiles the slice finds the file."""
    REFUSED = "refused"
    """Not a plain include of a named file: an embed, a computed name, a path into /dev or /proc. The line is dropped."""


@frozen
class Include:
    """One include directive. `start:end` is the whole directive (continued lines included), in code points."""

    name: str
    angled: bool
    kind: IncludeKind
    start: int
    end: int
    line: int
    """Zero-based."""
    unconditional: bool
    """No `#if` decides about it, other than the include guard of the whole file."""
    reason: str = ""
    """For a refused one: what is wrong with it."""


@frozen
class DeviceSlice:
    """The device part of a text.

    `text` has the length, lines and columns of the document. `dropped` names what was left out: functions, variables,
    types, headers. `constexpr_at` holds the offsets of the word `constexpr` of functions without an execution space,
    which device code may call in constant expressions; NVRTC wants them annotated. `names` is every identifier that
    the kept code uses.
    """

    text: str
    includes: tuple[Include, ...] = ()
    dropped: tuple[str, ...] = ()
    constexpr_at: tuple[int, ...] = ()
    names: frozenset[str] = frozenset()
    dropped_functions: frozenset[str] = frozenset()
    """Host functions that were left out: a device function that calls one makes an error, and this says why."""
    using_namespaces: tuple[str, ...] = ()
    """Targets of kept `using namespace` directives; one whose header was dropped may be unknown to the compiler."""
    expansions: tuple[tuple[int, int, str], ...] = ()
    """(start, end, device part) of invocations of macros that write device code and host code: what stands for them."""


class _Kind(StrEnum):
    DEVICE = "device"
    """A function or variable of the device: always kept."""
    FUNCTION = "function"
    """A host function."""
    VARIABLE = "variable"
    NAMED = "named"
    """A type, an alias, a constant, a constexpr function: kept when something kept names it."""
    UNKNOWN = "unknown"
    DROP = "drop"


@frozen(eq=False)
class _Member:
    """A member of a class that only the host can use, or a constexpr one; dropped from the slice, or marked."""

    start: int
    end: int
    constexpr_at: int | None


@frozen(eq=False)
class _Item:
    kind: _Kind
    start: int
    end: int
    defines: frozenset[str]
    uses: frozenset[str]
    members: tuple[_Member, ...] = ()
    constexpr_at: int | None = None
    blank_always: tuple[tuple[int, int], ...] = ()
    """Parts that never belong to device code: the variables of `struct S {...} variables;`."""
    calls: frozenset[str] = frozenset()
    """For a constant: what its initialiser calls; it is no constant if that is a host function."""
    device_part: str = ""
    """For a macro that writes host code too: what to put in its place, on one line."""


@frozen(eq=False)
class _Outline:
    """A text cut into items, before anything is decided."""

    text: str
    code: str
    """The text with comments and literals blanked, same length."""
    items: tuple[_Item, ...]
    includes: tuple[Include, ...]
    macros: Mapping[str, frozenset[str]]
    """Macro -> identifiers of its body."""
    noise: tuple[tuple[int, int], ...]
    """Directives that mean nothing to device code, such as `#pragma omp`."""
    usings: tuple[tuple[int, int, str], ...]


def device_slice(text: str, keep_functions: Sequence[str] = ()) -> DeviceSlice:
    """The device part of one text.

    `keep_functions` names host functions (CPU references) that stay as they are, with all that they name; standard
    headers and `using namespace std` stay too then, because the host emulation compiles such a slice with the
    machine's own C++ compiler.
    """
    return slice_together([text], keep_functions)[0]


def slice_together(
    texts: Sequence[str], keep_functions: Sequence[str] = (), names: Collection[str] = ()
) -> tuple[DeviceSlice, ...]:
    """Slices of a text and its own headers: what any of them names is kept in each of them.

    `names` are needed though no device code of the texts names them, as in the arguments of a template.
    """
    device_words = _device_macros([_macros_of(text) for text in texts])
    models = [parse(text) for text in texts]
    own = [model.macros for model in models]
    outlines = [_outline(text, device_words, _foreign(index, texts, own)) for index, text in enumerate(texts)]
    macros: dict[str, frozenset[str]] = {}
    for outline in outlines:
        for name, uses in outline.macros.items():
            macros[name] = macros.get(name, frozenset()) | uses
    needed = frozenset(names) | _names_of_instances(models)
    kept, used, host_kept = _closure(outlines, macros, frozenset(keep_functions), needed)
    return tuple(
        _apply(outline, kept, used, host_kept, bool(keep_functions))
        for outline in outlines
    )  # fmt: skip


# Limited, so that a text full of `<` is read in time.
_WITH_ARGUMENTS = re.compile(r"\b([A-Za-z_]\w*)[ \t]*<([^;{}]{1,400}?)>[ \t\r\n]*(?:<[ \t]*<[ \t]*<|\()")
_LOCAL_ALIAS = re.compile(r"\busing[ \t]+(\w+)[ \t]*=([^;{}]{1,400});")


def _names_of_instances(models: Sequence[SourceModel]) -> frozenset[str]:
    """Names in the arguments with which kernels, and functions that may pass them on, are called: types that they need."""
    if not any(kernel.template for model in models for kernel in model.kernels):
        return frozenset()
    functions = {kernel.name for model in models for kernel in model.kernels if kernel.template}
    functions |= {function.name for model in models for function in model.functions if function.template}
    names: set[str] = set()
    aliases: dict[str, set[str]] = {}
    for model in models:
        code = mask(model.text)
        for match in _LOCAL_ALIAS.finditer(code):
            aliases.setdefault(match[1], set()).update(_WORD.findall(match[2]))
        for match in _WITH_ARGUMENTS.finditer(code):
            if match[1] in functions:
                names.update(_WORD.findall(match[2]))
    todo = list(names)
    while todo:
        more = aliases.get(todo.pop(), set()) - names
        names |= more
        todo += more
    return frozenset(names)


def _foreign(index: int, texts: Sequence[str], macros: Sequence[Mapping[str, Macro]]) -> tuple[Macro, ...]:
    """Macros of the other texts that this one invokes, and those that they need."""
    if len(texts) == 1:
        return ()
    own = macros[index]
    words = set(_WORD.findall(texts[index])) - own.keys()
    others: dict[str, Macro] = {}
    for at, defined in enumerate(macros):
        if at != index:
            for name, macro in defined.items():
                others.setdefault(name, macro)
    wanted = words & others.keys()
    if all(others[name].parameters is None for name in wanted):
        return ()
    todo = list(wanted)
    while todo:
        more = {name for name in others[todo.pop()].words if name in others} - wanted
        wanted |= more
        todo += more
    return tuple(others[name] for name in sorted(wanted))


def all_includes(text: str) -> tuple[Include, ...]:
    """Every include of a text, in host functions too: what a compiler of the whole text would read."""
    return _read_directives(text, mask(text))[0]


def includes_of(text: str) -> tuple[Include, ...]:
    """The includes of a text that a slice may keep, before anything is decided: those outside of host functions."""
    outline = _outline(text, _device_macros([_macros_of(text)]))
    spans = [(item.start, item.end) for item in outline.items if item.kind is _Kind.FUNCTION]
    return tuple(i for i in outline.includes if not any(start <= i.start < end for start, end in spans))


def kernel_slice_key(
    slice_text: str, kernel: Kernel, kernels: Sequence[Kernel] | None = None, headers: Mapping[str, str] | None = None
) -> str:
    """A hash of the part of a slice that one kernel depends on, insensitive to white space and comments.

    That part is, conservatively, the slice without the other kernels (but with those that this one names, as it may
    launch them), and the content of the headers. `kernels` are those of the text; None means that they are looked for.
    """
    found = kernels if kernels is not None else kernels_of(slice_text)
    digest = hashlib.sha256(kernel.qualified_name.encode("utf-8", "surrogatepass"))
    parts = (
        without_kernels(slice_text, found, (kernel,)),
        *(f"{name}\n{text}" for name, text in (headers or {}).items()),
    )
    for part in parts:
        digest.update(b"\0" + _normalised(part).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def without_kernels(slice_text: str, kernels: Sequence[Kernel], keep: Sequence[Kernel]) -> str:
    """A slice without the kernels that are not in `keep` and that those do not launch themselves."""
    starts = {kernel.start for kernel in keep}
    spans = [
        (other.start, other.end)
        for other in kernels
        if other.start not in starts and not any(_mentions(slice_text, kernel, other) for kernel in keep)
    ]
    return blank(slice_text, spans)


def kernels_of(text: str) -> tuple[Kernel, ...]:
    """The kernels of a text; bodies and parameters are not read."""
    return parse(text).kernels


def blank(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with the spans overwritten by spaces; line ends stay."""
    parts: list[str] = []
    at = 0
    for start, end in sorted(spans):
        start = max(start, at)
        if end <= start:
            continue
        parts.append(text[at:start])
        parts.append(re.sub(r"[^\r\n]", " ", text[start:end]))
        at = end
    parts.append(text[at:])
    return "".join(parts)


def mask(text: str) -> str:
    """The text with comments, string and character literals overwritten by spaces (quotes stay), same length.

    Raw strings, line continuations in comments and digit separators are understood. Include targets stay readable:
    use the text itself for those.
    """
    out: list[str] = []
    at = 0
    for token in _LEXICAL.finditer(text):
        if token["number"] is not None:
            continue
        out.append(text[at : token.start()])
        piece = token.group()
        if token["comment"] is not None:
            out.append(re.sub(r"[^\r\n]", " ", piece))
        else:
            out.append(piece[0] + re.sub(r"[^\r\n]", " ", piece[1:-1]) + (piece[-1] if len(piece) > 1 else ""))
        at = token.end()
    out.append(text[at:])
    return "".join(out)


_LEXICAL = re.compile(
    rf"(?P<comment>{LINE_COMMENT}|{BLOCK_COMMENT})|(?P<raw>\b{RAW_STRING})|(?P<string>{QUOTED})"
    # A quote inside a number separates digits.
    r"|(?P<number>\b[0-9](?:'?[0-9A-Za-z_.])*)"
    r"|(?P<character>'[^'\\\r\n]*(?:\\(?:\r\n|[\s\S])[^'\\\r\n]*)*'?)"
)


def _normalised(text: str) -> str:
    """Tokens joined by one space; a directive keeps its line end, because the preprocessor works by lines."""
    text = re.sub(r"\\[ \t]*(?:\r\n|\r|\n)", " ", text)
    lines: list[str] = []
    # Literals are told apart by their text, so comments alone are removed here.
    text = _LEXICAL.sub(lambda token: " " if token["comment"] is not None else token.group(), text)
    for line in re.split(r"\r\n|\r|\n", text):
        tokens = " ".join(re.findall(r"[A-Za-z_0-9.]+|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S", line))
        if tokens:
            lines.append(f"\n{tokens}\n" if tokens.startswith("#") else tokens)
    return " ".join(lines)


def _mentions(text: str, kernel: Kernel, other: Kernel) -> bool:
    """The kernel launches or calls the other one, so that it cannot do without it."""
    return re.search(rf"\b{re.escape(other.name)}\b", text[kernel.body_start : kernel.body_end]) is not None


# What a macro means decides what is device code, so macros of all texts are read before any text is cut up.


@functools.lru_cache(maxsize=256)
def _macros_of(text: str) -> Mapping[str, frozenset[str]]:
    macros: dict[str, frozenset[str]] = {}
    for start, end in _directives(text):
        if (match := _DEFINE.match(mask(text[start:end]))) is not None:
            body = frozenset(_WORD.findall(match[3])) - frozenset(_WORD.findall(match[2] or ""))
            macros[match[1]] = macros.get(match[1], frozenset()) | body
    return macros


def _device_macros(groups: Sequence[Mapping[str, frozenset[str]]]) -> frozenset[str]:
    """Every word that says `device`: the language's own, and macros that expand to one of them."""
    words = set(DEVICE_WORDS)
    grown = True
    while grown:
        grown = False
        for macros in groups:
            for name, uses in macros.items():
                if name not in words and not uses.isdisjoint(words):
                    words.add(name)
                    grown = True
    return frozenset(words)


@functools.lru_cache(maxsize=256)
def _directives(text: str) -> tuple[tuple[int, int], ...]:
    """Spans of the preprocessor directives, continued lines included, the line end not."""
    code = mask(text)
    # A comment counts as a space, so a directive goes on behind one that holds line ends.
    joined = _LEXICAL.sub(_on_one_line, text) if "/*" in text else code
    spans: list[tuple[int, int]] = []
    for match in re.finditer(r"(?:^|(?<=[\r\n]))[ \t\v\f]*(?:#|%:|\?\?=)", code):
        start = match.start()
        if spans and start < spans[-1][1]:
            continue
        end = match.end()
        while True:
            line_end = _LINE_END.search(joined, end)
            assert line_end is not None
            if joined[start : line_end.start()].rstrip(" \t").endswith("\\") and line_end.start() < len(joined):
                end = line_end.end()
                continue
            spans.append((start, line_end.start()))
            break
    return tuple(spans)


_LINE_END = re.compile(r"\r\n|\r|\n|\Z")


def _on_one_line(token: re.Match[str]) -> str:
    """A comment as spaces; strings as `mask` shows them."""
    piece = token.group()
    if token["comment"] is not None:
        return " " * len(piece)
    if token["number"] is not None or len(piece) < 2:
        return piece
    return piece[0] + re.sub(r"[^\r\n]", " ", piece[1:-1]) + piece[-1]


def _parse(data: bytes) -> tree_sitter.Tree:
    """Parse in pieces: tree-sitter holds the interpreter's lock and lets other threads in only at these two callbacks."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    return parser.parse(lambda at, _: data[at : at + 4096], progress_callback=lambda *_: False)


class _Offsets:
    """Byte offsets of the UTF-8 form -> code points. Asked in any order, cheap for ASCII."""

    def __init__(self, text: str) -> None:
        self.data = text.encode("utf-8", "surrogatepass")
        self._ascii = len(self.data) == len(text)
        self._starts: list[int] = []
        if not self._ascii:
            total = 0
            for byte in range(0, len(self.data), 256):
                self._starts.append(total)
                total += sum(1 for value in self.data[byte : byte + 256] if value & 0xC0 != 0x80)

    def __getitem__(self, byte: int) -> int:
        if self._ascii:
            return byte
        block = min(byte // 256, len(self._starts) - 1)
        head = self.data[block * 256 : byte]
        return self._starts[block] + sum(1 for value in head if value & 0xC0 != 0x80)


_ATTRIBUTES = re.compile(
    r"\b(?:__align__|__attribute__|__declspec|alignas|__maxnreg__|__cluster_dims__|__block_size__)\s*"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
)
_CONTAINERS = frozenset(
    {"translation_unit", "declaration_list", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif"}
    | {"preproc_elifdef", "field_declaration_list"}
)
_SPECIFIERS = frozenset({"struct_specifier", "class_specifier", "union_specifier", "enum_specifier"})
_DIRECTIVES = frozenset({"preproc_def", "preproc_function_def", "preproc_call", "preproc_include"})


@functools.lru_cache(maxsize=256)
def _outline(text: str, device_words: frozenset[str], foreign: tuple[Macro, ...] = ()) -> _Outline:
    code = mask(text)
    model = parse(text)
    skeleton, made = model.skeleton, model.invocations
    macros = model.macros
    if foreign:
        macros = {**{macro.name: macro for macro in foreign}, **macros}
        made = invocations(text, skeleton, macros)
        skeleton = skeleton.without([(invocation.start, invocation.end) for invocation in made], text)
    # The grammar does not know these in every place where a compiler takes them; they say nothing about what is device code.
    readable = _ATTRIBUTES.sub(lambda match: re.sub(r"[^\r\n]", " ", match.group()), code)
    # A macro that is invoked without a semicolon looks to it like the beginning of what follows.
    readable = blank(readable, [(invocation.start, invocation.end) for invocation in made])
    offsets = _Offsets(readable)
    root = _parse(offsets.data).root_node
    reader = _Reader(text, code, offsets, device_words, frozenset(macros), skeleton)
    for invocation in made:
        reader.add(_invoked(invocation, device_words))
    reader.read(root)
    includes, noise = _read_directives(text, code)
    return _Outline(text, code, tuple(reader.items), includes, _macros_of(text), noise, tuple(reader.usings))


def _invoked(made: Invocation, device_words: frozenset[str]) -> _Item:
    """What a macro outside of functions writes, by its expansion."""
    inner = _outline(made.expansion, device_words)
    kept = [item for item in inner.items if item.kind in (_Kind.DEVICE, _Kind.NAMED)]
    left_out = [item for item in inner.items if item.kind in (_Kind.FUNCTION, _Kind.VARIABLE)]
    defines = frozenset(name for item in inner.items for name in item.defines)
    uses = frozenset((made.name,)).union(*(item.uses for item in kept or left_out))
    if not kept:
        return _Item(_Kind.FUNCTION, made.start, made.end, defines, uses)
    kind = _Kind.DEVICE if any(item.kind is _Kind.DEVICE for item in kept) else _Kind.NAMED
    part = ""
    if left_out:
        part = " ".join(blank(made.expansion, [(item.start, item.end) for item in left_out]).split())
    return _Item(kind, made.start, made.end, defines, uses, device_part=part)


class _Reader:
    """Turns the tree into items. It looks at declarations only, never into a function's body."""

    def __init__(
        self,
        text: str,
        code: str,
        offsets: _Offsets,
        device_words: frozenset[str],
        macros: frozenset[str],
        skeleton: Skeleton,
    ) -> None:
        self.text, self.code, self.offsets, self.skeleton = text, code, offsets, skeleton
        self.device_words, self.macros = device_words, macros
        self.items: list[_Item] = []
        self.usings: list[tuple[int, int, str]] = []
        self.after_device = False

    def span(self, node: tree_sitter.Node) -> tuple[int, int]:
        return self.offsets[node.start_byte], self.offsets[node.end_byte]

    def words(self, start: int, end: int) -> frozenset[str]:
        return frozenset(_WORD.findall(self.code, start, end))

    def read(self, container: tree_sitter.Node) -> None:
        stack = [iter(container.children)]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
            elif node.type in _CONTAINERS:
                stack.append(iter(node.children))
            elif node.type == "namespace_definition" or (
                node.type == "linkage_specification" and any(c.type == "declaration_list" for c in node.children)
            ):
                body = next((c for c in node.children if c.type == "declaration_list"), None)
                if body is not None:
                    stack.append(iter(body.children))
            else:
                self.item(node)

    def item(self, node: tree_sitter.Node) -> None:
        kind = node.type
        if self.broken(node):
            self.lexical(*self.span(node))
            return
        if kind in _DIRECTIVES or kind == "comment" or kind.startswith("#") or (not node.is_named and kind != "ERROR"):
            return
        start, end = self.span(node)
        if not self.code[start:end].strip(" \t\r\n;"):
            return
        inner = node
        while inner.type in ("template_declaration", "linkage_specification") and inner.named_children:
            inner = inner.named_children[-1]
        if inner.type in ("function_definition", "inline_method_definition"):
            self.function(inner, start, end)
        elif inner.type in ("declaration", "field_declaration"):
            self.declaration(inner, start, end)
        elif inner.type in _SPECIFIERS:
            self.type_definition(inner, start, end)
        elif inner.type in ("type_definition", "alias_declaration", "concept_definition", "namespace_alias_definition"):
            self.alias(inner, start, end)
        elif inner.type == "using_declaration":
            self.using(inner, start, end)
        elif inner.type in ("template_instantiation", "static_assert_declaration"):
            device = not self.device_words.isdisjoint(self.words(start, end))
            self.add(_Item(_Kind.DEVICE if device else _Kind.DROP, start, end, frozenset(), self.words(start, end)))
        elif inner.type in ("preproc_arg", "preproc_directive", "identifier", "preproc_defined", "number_literal"):
            return
        elif inner.type in (
            "binary_expression",
            "unary_expression",
            "call_expression",
            "parenthesized_expression",
        ) and (node.parent is not None and node.parent.type.startswith("preproc_")):
            return
        else:
            self.unknown(node, start, end)

    def broken(self, node: tree_sitter.Node) -> bool:
        """The grammar could not read it, or has put two functions into one."""
        if not node.has_error or node.type in _DIRECTIVES:
            return False
        start, end = self.span(node)
        inside = sum(start <= block.start < end for block in self.skeleton.blocks)
        return inside > (0 if node.type == "ERROR" else 1)

    def lexical(self, start: int, end: int) -> None:
        """Items of a part that the grammar cannot read, by the outline that only counts braces.

        What stands between them stays in the slice, so that a compiler sees it.
        """
        at = start
        spans = [(b.start, min(b.end, end), b.body_start) for b in self.skeleton.blocks if start <= b.start < end]
        spans += [(d.start, min(d.end + 1, end), -1) for d in self.skeleton.declarations if start <= d.start < end]
        for item_start, item_end, body_start in sorted(spans):
            if item_start < at:
                continue
            at = item_end
            words = self.words(item_start, item_end)
            head = self.words(item_start, body_start) if body_start >= 0 else words
            first = re.match(r"(?:template\s*<[^;{]*>\s*)?(\w+)", self.code[item_start:item_end])
            if not self.device_words.isdisjoint(head):
                self.after_device = True
                self.add(_Item(_Kind.DEVICE, item_start, item_end, frozenset(), words))
            elif body_start >= 0:
                header = read_header(self.text, item_start, body_start - 1)
                names = frozenset() if header is None else frozenset((header.name, *header.qualified))
                at_constexpr = self.code.find("constexpr", item_start, body_start)
                kind = _Kind.NAMED if at_constexpr >= 0 else _Kind.FUNCTION
                self.after_device = False
                self.add(
                    _Item(
                        kind,
                        item_start,
                        item_end,
                        names,
                        words,
                        constexpr_at=at_constexpr if at_constexpr >= 0 else None,
                    )
                )
            elif first is not None and first[1] in _NAMED_WORDS | {"using"} and "namespace" not in words:
                self.add(_Item(_Kind.NAMED, item_start, item_end, words - _NAMED_WORDS, words))
            else:
                self.add(_Item(_Kind.VARIABLE, item_start, item_end, frozenset(), words))

    def add(self, item: _Item) -> None:
        self.items.append(item)

    def head_end(self, function: tree_sitter.Node) -> int:
        body = function.child_by_field_name("body")
        return self.offsets[body.start_byte if body is not None else function.end_byte]

    def function(self, node: tree_sitter.Node, start: int, end: int) -> None:
        head = self.words(start, self.head_end(node))
        uses = self.words(start, end)
        if not self.device_words.isdisjoint(head):
            self.after_device = True
            self.add(_Item(_Kind.DEVICE, start, end, frozenset(), uses))
            return
        names = self.declared(node)
        body = self.words(self.head_end(node), end)
        if "__global__" in body:
            # A brace is missing further up, so that a kernel seems to lie inside a host function: nothing may be lost.
            self.add(_Item(_Kind.DEVICE, start, end, names, uses))
            return
        self.after_device = False
        if "constexpr" in head or "consteval" in head:
            at = self.code.find("constexpr", start, self.head_end(node))
            self.add(_Item(_Kind.NAMED, start, end, names, uses, constexpr_at=at if at >= 0 else None))
        else:
            self.add(_Item(_Kind.FUNCTION, start, end, names, uses))

    def declared(self, node: tree_sitter.Node) -> frozenset[str]:
        """The name that a function or variable declares; for a member defined outside its class the class too."""
        names: set[str] = set()
        stack = [c for c in node.children_by_field_name("declarator")]
        while stack:
            child = stack.pop()
            if child.type in ("identifier", "field_identifier", "type_identifier"):
                names.update(self.words(*self.span(child)))
            elif child.type in ("qualified_identifier", "template_function", "template_type", "operator_name"):
                first = child.child_by_field_name("name") or child
                names.update(_WORD.findall(self.code, *self.span(first)))
                scope = child.child_by_field_name("scope")
                if scope is not None:
                    names.update(_WORD.findall(self.code, *self.span(scope)))
            else:
                inner = child.child_by_field_name("declarator")
                if inner is not None:
                    stack.append(inner)
                else:
                    stack += [
                        c
                        for c in child.named_children
                        if c.type.endswith("declarator") or c.type.endswith("identifier")
                    ]
        return frozenset(names)

    def declaration(self, node: tree_sitter.Node, start: int, end: int) -> None:
        words = self.words(start, end)
        type_node = node.child_by_field_name("type")
        is_function = self.is_function_declaration(node)
        if not self.device_words.isdisjoint(words) and not (
            type_node is not None and type_node.type in _SPECIFIERS and not is_function and self.plain_head(node, start)
        ):
            self.add(_Item(_Kind.DEVICE, start, end, frozenset(), words))
            return
        if is_function:
            names = self.declared(node)
            kind = _Kind.NAMED if "constexpr" in words else _Kind.FUNCTION
            at = self.code.find("constexpr", start, end) if kind is _Kind.NAMED else None
            self.add(_Item(kind, start, end, names, words, constexpr_at=at))
            return
        if type_node is not None and type_node.type in _SPECIFIERS and type_node.child_by_field_name("body"):
            # `struct S {...} s;`: the type may be needed, the variable belongs to the host.
            type_end = self.span(type_node)[1]
            self.type_definition(type_node, start, type_end, tail=(type_end, end - 1))
            return
        qualifiers = self.words(start, self.span(type_node)[1]) if type_node is not None else words
        before = frozenset(
            word
            for c in node.children
            if c.type in ("type_qualifier", "storage_class_specifier")
            for word in self.words(*self.span(c))
        )
        if {"const", "constexpr", "constinit"}.isdisjoint(qualifiers | before):
            self.add(_Item(_Kind.VARIABLE, start, end, self.declared(node), words))
            return
        self.add(_Item(_Kind.NAMED, start, end, self.declared(node), words, calls=self.calls(node)))

    def plain_head(self, node: tree_sitter.Node, start: int) -> bool:
        type_node = node.child_by_field_name("type")
        assert type_node is not None
        body = type_node.child_by_field_name("body")
        head_end = self.offsets[body.start_byte] if body is not None else self.span(type_node)[1]
        tail = self.words(self.span(type_node)[1], self.offsets[node.end_byte])
        return self.device_words.isdisjoint(self.words(start, head_end) | tail)

    def calls(self, node: tree_sitter.Node) -> frozenset[str]:
        names: set[str] = set()
        for child in node.named_children:
            value = child.child_by_field_name("value")
            if value is not None:
                start, end = self.span(value)
                names.update(re.findall(r"([A-Za-z_]\w*)\s*\(", self.code[start:end]))
                if re.search(r"\bstd\s*::|\bnew\b", self.code[start:end]):
                    names.add("new")
        return frozenset(names)

    def is_function_declaration(self, node: tree_sitter.Node) -> bool:
        for declarator in node.children_by_field_name("declarator"):
            child: tree_sitter.Node | None = declarator
            while child is not None:
                if child.type == "function_declarator":
                    inner = child.child_by_field_name("declarator")
                    # `void (*callback)(int)` is a variable.
                    return inner is None or inner.type != "parenthesized_declarator"
                if child.type == "init_declarator":
                    break
                child = child.child_by_field_name("declarator") or next(
                    (c for c in child.named_children if c.type.endswith("declarator")), None
                )
        return False

    def type_definition(
        self, node: tree_sitter.Node, start: int, end: int, tail: tuple[int, int] | None = None
    ) -> None:
        names: set[str] = set()
        name = node.child_by_field_name("name")
        if name is not None:
            names.update(_WORD.findall(self.code, *self.span(name)))
        words = self.words(start, end)
        body = node.child_by_field_name("body")
        if node.type == "enum_specifier" and body is not None:
            for enumerator in body.named_children:
                if (label := enumerator.child_by_field_name("name")) is not None:
                    names.update(self.words(*self.span(label)))
        members = self.host_members(body) if body is not None and node.type != "enum_specifier" else ()
        # Functors are named at launch sites only, so a class with device members counts as device code.
        device = node.type != "enum_specifier" and not self.device_words.isdisjoint(words)
        self.add(
            _Item(
                _Kind.DEVICE if device else _Kind.NAMED,
                start,
                end,
                frozenset(names),
                words - frozenset(w for m in members if m.constexpr_at is None for w in self.words(m.start, m.end))
                | names
                if members
                else words,
                members=members,
                blank_always=() if tail is None else (tail,),
            )
        )

    def host_members(self, body: tree_sitter.Node) -> tuple[_Member, ...]:
        members: list[_Member] = []
        stack = list(body.named_children)
        while stack:
            node = stack.pop()
            if node.type in _CONTAINERS:
                stack += node.named_children
                continue
            inner = node
            while inner.type == "template_declaration" and inner.named_children:
                inner = inner.named_children[-1]
            start, end = self.span(node)
            if inner.type == "friend_declaration":
                if self.device_words.isdisjoint(self.words(start, end)) and "(" in self.code[start:end]:
                    members.append(_Member(start, end, None))
                continue
            if inner.type in ("function_definition", "inline_method_definition"):
                head_end = self.head_end(inner)
            elif inner.type in ("field_declaration", "declaration") and self.is_function_declaration(inner):
                head_end = end
            else:
                type_node = inner if inner.type in _SPECIFIERS else inner.child_by_field_name("type")
                nested = type_node.child_by_field_name("body") if type_node is not None else None
                if nested is not None and type_node is not None and type_node.type in _SPECIFIERS:
                    stack += nested.named_children
                continue
            head = self.words(start, head_end)
            if not self.device_words.isdisjoint(head) or re.search(
                r"=\s*(?:default|delete)\s*;?\s*$", self.code[start:end]
            ):
                continue
            at = self.code.find("constexpr", start, head_end) if "constexpr" in head else -1
            members.append(_Member(start, end, at if at >= 0 else None))
        return tuple(members)

    def alias(self, node: tree_sitter.Node, start: int, end: int) -> None:
        names: set[str] = set()
        if node.type == "type_definition":
            for declarator in node.children_by_field_name("declarator"):
                words = _WORD.findall(self.code, *self.span(declarator))
                names.update(words[:1] if declarator.type == "type_identifier" else words)
            type_node = node.child_by_field_name("type")
            if type_node is not None and type_node.type == "enum_specifier":
                if (body := type_node.child_by_field_name("body")) is not None:
                    names.update(self.words(*self.span(body)))
            members: tuple[_Member, ...] = ()
            if type_node is not None and type_node.type in _SPECIFIERS - {"enum_specifier"}:
                body = type_node.child_by_field_name("body")
                members = self.host_members(body) if body is not None else ()
            words_all = self.words(start, end)
            device = not self.device_words.isdisjoint(words_all)
            self.add(_Item(_Kind.DEVICE if device else _Kind.NAMED, start, end, frozenset(names), words_all, members))
            return
        name = node.child_by_field_name("name")
        if name is not None:
            names.update(self.words(*self.span(name)))
        self.add(_Item(_Kind.NAMED, start, end, frozenset(names), self.words(start, end)))

    def using(self, node: tree_sitter.Node, start: int, end: int) -> None:
        words = _WORD.findall(self.code, start, end)
        if len(words) > 2 and words[1] == "namespace":
            self.usings.append((start, end, "::".join(words[2:])))
        elif len(words) > 1:
            self.add(_Item(_Kind.NAMED, start, end, frozenset(words[-1:]), frozenset(words[1:])))

    def unknown(self, node: tree_sitter.Node, start: int, end: int) -> None:
        words = self.words(start, end)
        if not words.isdisjoint(self.device_words | _DEVICE_NAMES):
            self.add(_Item(_Kind.DEVICE, start, end, frozenset(), words))
            return
        invocation = re.match(r"\s*([A-Za-z_]\w*)\s*\(", self.code[start:end])
        if invocation and (invocation[1] in self.macros or invocation[1].isupper()):
            self.add(_Item(_Kind.DROP, start, end, frozenset(), words))
            return
        # Statements right behind a kernel are what is left of it when it holds one brace too many: a compiler must see them.
        kind = _Kind.DEVICE if self.after_device and self.code[start:end].strip() not in ("", ";") else _Kind.DROP
        self.add(_Item(kind, start, end, frozenset(), words))


_NAMED_WORDS = frozenset(
    {
        "struct",
        "class",
        "union",
        "enum",
        "typedef",
        "const",
        "constexpr",
        "static",
        "inline",
        "int",
        "float",
        "double",
        "unsigned",
    }
    | {"long", "short", "char", "bool", "template", "typename", "concept", "void", "volatile"}
)
_NO_CALLS = frozenset(
    {
        "sizeof",
        "alignof",
        "decltype",
        "static_cast",
        "reinterpret_cast",
        "int",
        "float",
        "double",
        "unsigned",
        "long",
        "char",
    }
    | {"short", "bool", "size_t", "dim3"}
)


def _closure(
    outlines: Sequence[_Outline],
    macros: Mapping[str, frozenset[str]],
    keep_functions: frozenset[str],
    needed: frozenset[str],
) -> tuple[set[int], frozenset[str], set[int]]:
    """Which items stay (by identity), the names that they use, and which of them only the host code needs."""
    items = [item for outline in outlines for item in outline.items]
    by_name: dict[str, list[_Item]] = {}
    host_functions: set[str] = set()
    constant: set[str] = set()
    for item in items:
        for name in item.defines:
            by_name.setdefault(name, []).append(item)
        if item.kind is _Kind.FUNCTION:
            host_functions |= item.defines
        elif item.constexpr_at is not None or not item.calls:
            constant |= item.defines

    def is_constant(item: _Item) -> bool:
        return all(name in macros or name in constant or name in _NO_CALLS for name in item.calls)

    def reach(
        roots: list[_Item], follow_host: bool, wanted_names: frozenset[str] = frozenset()
    ) -> tuple[set[int], set[str]]:
        kept = {id(item) for item in roots}
        names: set[str] = set(wanted_names)
        todo: list[str] = list(wanted_names)
        queue = list(roots)
        while queue or todo:
            while queue:
                item = queue.pop()
                todo += item.uses - names
                names |= item.uses
            while todo:
                name = todo.pop()
                if (body := macros.get(name)) is not None:
                    todo += body - names
                    names |= body
                for item in by_name.get(name, ()):
                    wanted = item.kind in (_Kind.NAMED, _Kind.DEVICE) and (follow_host or is_constant(item))
                    if id(item) not in kept and (wanted or (follow_host and item.kind is not _Kind.DROP)):
                        kept.add(id(item))
                        queue.append(item)
        return kept, names

    kept, names = reach([item for item in items if item.kind is _Kind.DEVICE], False, needed)
    host_kept: set[int] = set()
    if keep_functions:
        roots = [i for i in items if i.kind is not _Kind.DROP and not i.defines.isdisjoint(keep_functions)]
        host_kept, host_names = reach(roots, follow_host=True)
        names |= host_names
    return kept | host_kept, frozenset(names), host_kept


def _apply(
    outline: _Outline, kept: set[int], names: frozenset[str], host_kept: set[int], for_host: bool
) -> DeviceSlice:
    spans: list[tuple[int, int]] = list(outline.noise)
    dropped: list[str] = []
    dropped_functions: set[str] = set()
    constexpr_at: list[int] = []
    expansions: list[tuple[int, int, str]] = []
    for item in outline.items:
        if id(item) not in kept:
            spans += _keeping_conditionals(outline.code, item.start, item.end)
            dropped += sorted(item.defines)
            if item.kind is _Kind.FUNCTION:
                dropped_functions |= item.defines
            continue
        spans += item.blank_always
        if id(item) in host_kept:
            continue
        if item.device_part:
            expansions.append((item.start, item.end, item.device_part))
        if item.constexpr_at is not None:
            constexpr_at.append(item.constexpr_at)
        for member in item.members:
            if member.constexpr_at is not None:
                constexpr_at.append(member.constexpr_at)
            else:
                dropped += re.findall(r"([A-Za-z_]\w*)\s*\(", outline.code[member.start : member.end])[:1]
                spans += _keeping_conditionals(outline.code, member.start, member.end)
    includes: list[Include] = []
    for include in outline.includes:
        stays = include.kind in (IncludeKind.DEVICE, IncludeKind.USER) or (
            for_host and include.kind is IncludeKind.STANDARD
        )
        if not stays:
            spans.append((include.start, include.end))
            dropped.append(f"<{include.name}>" if include.angled else f'"{include.name}"')
        if not any(start <= include.start < end for start, end in _item_spans(outline, kept)):
            includes.append(include)
    usings: list[str] = []
    for start, end, target in outline.usings:
        if target.split("::")[0] == "std" and not for_host:
            spans.append((start, end))
            dropped.append(f"using namespace {target}")
        else:
            usings.append(target)
    text = blank(outline.text, spans)
    return DeviceSlice(
        text=text,
        includes=tuple(includes),
        dropped=tuple(dropped),
        constexpr_at=tuple(sorted(set(constexpr_at))),
        names=names,
        dropped_functions=frozenset(dropped_functions),
        using_namespaces=tuple(usings),
        expansions=tuple(expansions),
    )


def _item_spans(outline: _Outline, kept: set[int]) -> Iterator[tuple[int, int]]:
    return ((item.start, item.end) for item in outline.items if id(item) not in kept)


def _keeping_conditionals(code: str, start: int, end: int) -> list[tuple[int, int]]:
    """The span to blank, in pieces around `#if` lines that do not end inside it."""
    depth, lowest, lines = 0, 0, []
    for match in re.finditer(r"(?:^|(?<=[\r\n]))[^\r\n]*", code[start:end]):
        if (directive := _CONDITIONAL.match(match.group())) is not None:
            lines.append((start + match.start(), start + match.end()))
            if directive[1].startswith("if"):
                depth += 1
            elif directive[1] == "endif":
                depth -= 1
            lowest = min(lowest, depth)
    if depth == 0 and lowest == 0:
        return [(start, end)]
    spans = []
    for line_start, line_end in lines:
        spans.append((start, line_start))
        start = line_end
    return [*spans, (start, end)]


def _read_directives(text: str, code: str) -> tuple[tuple[Include, ...], tuple[tuple[int, int], ...]]:
    includes: list[Include] = []
    noise: list[tuple[int, int]] = []
    depth = 0
    guard_depth = 0
    first = True
    line, counted = 0, 0
    for start, end in _directives(text):
        directive = code[start:end]
        if (conditional := _CONDITIONAL.match(directive)) is not None:
            if conditional[1].startswith("if"):
                # A guard is an #ifndef before anything else, as in every header.
                if first and conditional[1] == "ifndef" and not code[:start].strip():
                    guard_depth = 1
                depth += 1
            elif conditional[1] == "endif":
                depth -= 1
                guard_depth = min(guard_depth, max(depth, 0))
            first = False
            continue
        # The directive may begin behind the end of a comment, which its own text would not show as one.
        words = text[start + len(code[start:end]) - len(code[start:end].lstrip()) : end]
        spliced = _SPLICE.sub("", _uncommented(words))
        if (match := _INCLUDE.match(spliced)) is not None:
            line += len(re.findall(r"\r\n|\r|\n", text[counted:start]))
            counted = start
            includes.append(_include(match[1], match[2].strip(), start, end, line, depth <= guard_depth))
        elif (pragma := _PRAGMA.match(directive)) is not None and pragma[1] not in _KEPT_PRAGMAS:
            noise.append((start, end))
        first = False
    return tuple(includes), tuple(noise)


_SPLICE = re.compile(r"\\[ \t]*(?:\r\n|\r|\n)")


def joined(text: str) -> str:
    """A text as compilers read it before C++17: trigraphs replaced, continued lines joined."""
    if "??" in text:
        text = _TRIGRAPH.sub(lambda found: _TRIGRAPHS[found[1]], text)
    return _SPLICE.sub("", text)


@functools.lru_cache(maxsize=256)
def hides_includes(text: str) -> bool:
    """Whether a text has other includes for a compiler, which joins continued lines first, than `all_includes` sees.

    A `*` and a `/` on two lines end a comment, an `R` behind a line's end begins no raw string; before C++17 the three
    characters of a trigraph continue a line too.
    """
    trigraphs = "??/" in text
    # Most continued lines are those of macros, which are read alike either way; a long text takes a while to read.
    if not trigraphs and _TELLING_SPLICE.search(text) is None:
        return False
    read = {text, _SPLICE.sub("", text)}
    if trigraphs:
        read.add(joined(text))
    includes = [sorted((include.kind, include.name) for include in all_includes(each)) for each in read]
    return any(each != includes[0] for each in includes)


_TELLING_SPLICE = re.compile(r"[/*R\"'%:?\\]\\(?:\r\n|\r|\n)|\\[ \t]+(?:\r\n|\r|\n)|\\(?:\r\n|\r|\n)[/*R\"'%:?\\]")
"""Beside a character that begins or ends a comment, a literal or a directive when it is joined with another."""
_TRIGRAPHS = {"/": "\\", "=": "#", "'": "^", "(": "[", ")": "]", "!": "|", "<": "{", ">": "}", "-": "~"}
_TRIGRAPH = re.compile(r"\?\?([/='()!<>\-])")
_PROBE = re.compile(r"\b__has(?:_(?:include|embed)(?:_next)?|_?)\b")
_PLAIN_PROBE = re.compile(r"\s*\(\s*(?:<([^<>\"\r\n]+)>|\"([^\"\r\n]+)\")")


def probes_of(text: str) -> tuple[tuple[int, str], ...]:
    """`__has_include` of what a workspace does not hold: (zero-based line, name); one that names no file plainly too."""
    if "__has" not in text and not (_SPLICE.search(text) and "__has" in _SPLICE.sub("", text)):
        return ()
    found = []
    plain = _SPLICE.sub("", _uncommented(text))
    code = mask(plain)
    for match in _PROBE.finditer(plain):
        if code[match.start()] == " ":
            continue  # in a string
        target = _PLAIN_PROBE.match(plain, match.end())
        name = "" if target is None else (target[1] or target[2]).strip()
        tested = re.search(r"#[ \t]*(?:if|elif)n?def[ \t]+$|\bdefined[ \t]*\(?[ \t]*$", plain[: match.start()])
        if tested is None and (not name or name.startswith("/") or ".." in name.split("/")):
            found.append((len(_LINE_BREAK.findall(plain, 0, match.start())), name))
    return tuple(found)


_LINE_BREAK = re.compile(r"\r\n|\r|\n")


def _uncommented(text: str) -> str:
    return _LEXICAL.sub(lambda token: " " if token["comment"] is not None else token.group(), text)


def _include(word: str, target: str, start: int, end: int, line: int, unconditional: bool) -> Include:
    def refused(reason: str, name: str = target, angled: bool = False) -> Include:
        return Include(name, angled, IncludeKind.REFUSED, start, end, line, unconditional, reason)

    if word != "include":
        return refused(f"#{word} is not allowed in code that is judged")
    plain = _PLAIN_TARGET.fullmatch(target)
    if plain is None:
        return refused(f"#include {target} does not name a file plainly")
    angled = plain[1] is not None
    name = (plain[1] or plain[2]).strip()
    if re.match(r"/(?:dev|proc|sys)(?:/|$)", re.sub(r"/+", "/", name)) or "\0" in name:
        return refused(f"#include of {name} is not allowed: it is no header", name, angled)
    return Include(name, angled, classify_header(name, angled), start, end, line, unconditional)


_STANDARD_HEADERS = frozenset(
    """algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv chrono cinttypes
    climits clocale cmath compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstdbool cstddef
    cstdint cstdio cstdlib cstring ctgmath ctime cuchar cwchar cwctype deque exception execution expected filesystem
    format forward_list fstream functional future generator initializer_list iomanip ios iosfwd iostream istream iterator
    latch limits list locale map mdspan memory memory_resource mutex new numbers numeric optional ostream print queue
    random ranges ratio regex scoped_allocator semaphore set shared_mutex source_location span spanstream sstream stack
    stacktrace stdexcept stdfloat stop_token streambuf string string_view strstream syncstream system_error thread tuple
    type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
    assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h signal.h
    stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h tgmath.h threads.h
    time.h uchar.h wchar.h wctype.h malloc.h memory.h strings.h unistd.h fcntl.h dirent.h getopt.h dlfcn.h pthread.h
    semaphore.h sched.h omp.h mpi.h nccl.h windows.h Windows.h""".split()
)
_BUILT_IN_HEADERS = frozenset(
    """cuda_runtime.h cuda_runtime_api.h device_launch_parameters.h cuda.h device_functions.h host_defines.h
    device_atomic_functions.h math_functions.h builtin_types.h driver_types.h vector_functions.h device_types.h
    sm_20_intrinsics.h sm_30_intrinsics.h sm_32_intrinsics.h sm_35_intrinsics.h sm_60_atomic_functions.h
    sm_61_intrinsics.h crt/host_defines.h crt/device_functions.h cuda_device_runtime_api.h channel_descriptor.h
    cuda_profiler_api.h cudaProfiler.h vector_types.h cuda_surface_types.h cuda_texture_types.h texture_types.h
    surface_types.h texture_fetch_functions.h surface_functions.h cuda_gl_interop.h nvrtc.h""".split()
)
_DEVICE_HEADERS = re.compile(
    r"(?:cuda_(?:fp16|bf16|fp8|fp6|fp4|tf32|pipeline|pipeline_primitives|pipeline_helpers|awbarrier|awbarrier_primitives)\.hp?p?"
    r"|mma\.h|cuComplex\.h|math_constants\.h|cooperative_groups(?:/[\w/]+)?\.h|cuda/[\w/]+|nv/target|cub/[\w/]+\.cuh"
    r"|curand\w*_?kernel\.h|curand_\w+\.h|(?:cute|cutlass)/(?:\w+/)*\w+\.hp?p?)"
)
_HOST_HEADERS = re.compile(
    r"(?:thrust/.*|torch/.*|ATen/.*|c10/.*|pybind11/.*|helper_(?:cuda|functions|string|timer|image|gl|math_host)\.h"
    r"|(?:common/|\.\./)*inc/helper_\w+\.h|exception\.h|cublas\w*\.h|cudnn\w*\.h|cusparse\w*\.h|cufft\w*\.h|cusolver\w*\.h"
    r"|curand\.h|nvToolsExt\.h|nvtx3/.*|npp\w*\.h|nvml\.h|cupti\w*\.h|cudaGL\.h|GL/.*|gtest/.*|gmock/.*|benchmark/.*"
    r"|nvbench/.*|boost/.*|Eigen/.*|opencv2?/.*|sys/.*|arpa/.*|netinet/.*|linux/.*|bits/.*|Python\.h|numpy/.*|fmt/.*"
    r"|spdlog/.*|cutil\w*\.h)"
)


def classify_header(name: str, angled: bool) -> IncludeKind:
    """What is known of a header by its name alone."""
    if (name in _STANDARD_HEADERS and angled) or (
        name in _STANDARD_HEADERS and name.endswith(".h") and "/" not in name
    ):
        return IncludeKind.STANDARD
    if name in _BUILT_IN_HEADERS:
        return IncludeKind.BUILT_IN
    if _DEVICE_HEADERS.fullmatch(name):
        return IncludeKind.DEVICE
    if _HOST_HEADERS.fullmatch(name):
        return IncludeKind.HOST
    return IncludeKind.USER
