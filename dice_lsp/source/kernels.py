"""What a CUDA text holds: kernels, functions, launches, constants, includes.

`parse` reads the outline at once and everything else when it is first asked for, so that the answer for a kernel does
not wait for the other 100 000 lines.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from functools import cached_property, lru_cache

from attrs import evolve, field, frozen

from dice_lsp.records import Kernel, Parameter
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.headers import Header, match_angle_back, read_header
from dice_lsp.source.macros import Invocation, Macro, expand, invocations, macros_of
from dice_lsp.source.positions import LineIndex
from dice_lsp.source.skeleton import Block, Skeleton, outline
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, lex, line_start, split_top_level, without_comments


@frozen
class Function:
    """A function with a body that is no kernel."""

    name: str
    qualified_name: str
    parameters: tuple[Parameter, ...]
    start: int
    end: int
    body_start: int
    body_end: int
    is_host: bool
    is_device: bool
    return_type: str
    template: tuple[str, ...] = ()


@frozen
class LaunchSite:
    """`name<template_text><<<grid, block, smem, stream>>>(arguments)` at `start:end`; texts as written, trimmed."""

    name: str
    """Without namespaces."""
    template_text: str | None
    grid: str | None
    block: str | None
    smem: str | None
    stream: str | None
    arguments: tuple[str, ...]
    start: int
    end: int
    function: str | None
    """Name of the function around it."""
    function_start: int | None
    complete: bool
    """False when its `>>>` or its closing parenthesis is missing."""


@frozen
class Include:
    """`#include "text"` or `#include <text>` on a zero-based line."""

    text: str
    quoted: bool
    line: int


@frozen
class KernelDeclaration:
    """A kernel's forward declaration or explicit instantiation at `start:end`, semicolon not included."""

    name: str
    start: int
    end: int
    parameters: tuple[Parameter, ...]
    template_arguments: str | None
    """The text between the angle brackets of an explicit instantiation."""


_DEFINE = re.compile(r"#\s*define\s+(\w+)\b(?!\()[ \t]*(.*)", re.DOTALL)
_UNDEF = re.compile(r"#\s*undef\s+(\w+)")
_INCLUDE = re.compile(r'#\s*include(?:_next)?\s*(?:"([^"\r\n]+)"|<([^>\r\n]+)>)')
_CONSTANT = re.compile(r"\b(?:constexpr|const)\b")
_INTEGER_WORDS = {
    "int", "unsigned", "long", "short", "char", "size_t", "signed", "bool", "auto", "int8_t", "int16_t", "int32_t",
    "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "uint", "ptrdiff_t",
}  # fmt: skip
_KERNEL_MACROS = frozenset(
    {"CUTLASS_GLOBAL", "CCCL_DETAIL_KERNEL_ATTRIBUTES", "_CCCL_KERNEL_ATTRIBUTES", "CUB_DETAIL_KERNEL_ATTRIBUTES"}
)
"""Macros of libraries that stand for `__global__`, which a text uses without defining them."""
_MAX_LAUNCH = 1000
"""Longest name with template arguments before a `<<<`, in code points."""
_LAUNCH = re.compile(r"<[ \t]*<[ \t]*<(?!=)")


@frozen(eq=False)
class SourceModel:
    """One text, read. All offsets are code points of `text`; the parts are computed on first use."""

    text: str = field(repr=False)
    skeleton: Skeleton = field(repr=False)
    invocations: tuple[Invocation, ...] = field(default=(), repr=False)
    """Macros of this text that are invoked outside of functions, as statements of their own."""

    @cached_property
    def macros(self) -> Mapping[str, Macro]:
        return macros_of(self.text, self.skeleton)

    @cached_property
    def lines(self) -> LineIndex:
        return LineIndex(self.text)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every `__global__` definition in the order of the text."""
        found = [self._kernel(block) for block in self.skeleton.blocks if self._is_kernel(block)]
        found += [kernel for made in self.invocations for kernel in self._made_by_macro(made)]
        kernels = [kernel for kernel in found if kernel is not None]
        return _told_apart(sorted(kernels, key=lambda kernel: kernel.start))

    def _made_by_macro(self, made: Invocation) -> tuple[Kernel, ...]:
        """Kernels that a macro's invocation defines. Their text is not in the document, so their body is empty here."""
        if "__global__" not in made.expansion:
            return ()
        scope = self.skeleton.scope_at(made.start)
        expanded = SourceModel(made.expansion, outline(made.expansion))
        return tuple(
            evolve(
                kernel,
                qualified_name="::".join((*(name for name in scope if name), kernel.qualified_name)),
                start=made.start,
                end=made.end,
                body_start=made.end,
                body_end=made.end,
                line=self.lines.line_of(made.start),
                extern_c=kernel.extern_c or "" in scope,
                macro=made.name,
            )
            for kernel in expanded.kernels
        )

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Every other function with a body."""
        found = (self._function(block) for block in self.skeleton.blocks if not self._is_kernel(block))
        return tuple(function for function in found if function is not None)

    @cached_property
    def declarations(self) -> tuple[KernelDeclaration, ...]:
        """Forward declarations and explicit instantiations of kernels."""
        found = []
        for declaration in self.skeleton.declarations:
            text = self.text[declaration.start : declaration.end]
            instantiation = re.match(r"(?:extern\s+)?template\b(?!\s*<)", text)
            if not instantiation and not self._marks(declaration.start, declaration.end):
                continue
            begin = declaration.start + (instantiation.end() if instantiation else 0)
            header = read_header(self.text, begin, declaration.end)
            if header is not None:
                arguments = header.arguments if instantiation else None
                found.append(
                    KernelDeclaration(header.name, declaration.start, declaration.end, header.parameters, arguments)
                )
        return tuple(found)

    @cached_property
    def launches(self) -> tuple[LaunchSite, ...]:
        """Every `<<<...>>>` in the order of the text."""
        starts = (match.start() for match in _LAUNCH.finditer(self.text))
        found = (self._launch(start) for start in starts if self.skeleton.is_code(start))
        return tuple(site for site in found if site is not None)

    @cached_property
    def constants(self) -> Mapping[str, str]:
        """Object-like macros and integer constants at file scope: name -> expression as written.

        A name with two different definitions, as under `#ifdef`, is left out: nobody knows which one counts.
        """
        found: dict[str, str | None] = {}

        def define(name: str, value: str) -> None:
            value = without_comments(value).replace("\\", " ").strip()
            found[name] = value if found.get(name, value) == value else None

        for span in self.skeleton.directives:
            line = self.text[span.start : span.end]
            if (match := _DEFINE.match(line)) is not None:
                define(match[1], match[2])
            elif (match := _UNDEF.match(line)) is not None:
                found[match[1]] = None
        for declaration in self.skeleton.declarations:
            line = self.text[declaration.start : declaration.end]
            if _CONSTANT.search(line):
                for name, value in constant_definitions(line):
                    define(name, value)
            elif line.startswith("enum"):
                for name, value in enumerators(line):
                    define(name, value)
        return {name: value for name, value in found.items() if value}

    @cached_property
    def values(self) -> Mapping[str, int]:
        """Those of `constants` that fold to an integer."""
        return fold(self.constants)

    @cached_property
    def includes(self) -> tuple[Include, ...]:
        found = []
        for span in self.skeleton.directives:
            match = _INCLUDE.match(self.text, span.start, span.end)
            if match is not None:
                found.append(Include(match[1] or match[2], match[1] is not None, self.lines.line_of(span.start)))
        return tuple(found)

    def kernel_at(self, offset: int) -> Kernel | None:
        """The kernel whose definition holds `offset`."""
        starts = [kernel.start for kernel in self.kernels]
        index = bisect_right(starts, offset) - 1
        return self.kernels[index] if index >= 0 and offset <= self.kernels[index].end else None

    @cached_property
    def _kernel_words(self) -> re.Pattern[str]:
        """`__global__` and the macros that stand for it: those of this file, and those of libraries that are known."""
        words = {"__global__"}
        grown = True
        while grown:
            more = {name for name, macro in self.macros.items() if not macro.words.isdisjoint(words)} - words
            words |= more
            grown = bool(more)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words | _KERNEL_MACROS)))})\b")

    def _marks(self, start: int, end: int) -> bool:
        return any(self.skeleton.is_code(m.start()) for m in self._kernel_words.finditer(self.text, start, end))

    def _is_kernel(self, block: Block) -> bool:
        return self._marks(block.start, block.body_start)

    def _qualified(self, block: Block, header: Header) -> str:
        return "::".join((*(name for name in block.scope if name), *header.qualified, header.name))

    def _header_of(self, block: Block) -> Header | None:
        """The header of a kernel, which a macro may have written."""
        written = self.text[block.start : block.body_start - 1]
        if "__global__" in written or self.macros.keys().isdisjoint(re.findall(r"\w+", written)):
            return read_header(self.text, block.start, block.body_start - 1)
        expanded = expand(written, self.macros)
        header = read_header(expanded, 0, len(expanded))
        if header is None:
            return None
        at = re.search(rf"\b{re.escape(header.name)}\b", written)
        return evolve(header, name_start=block.start + (at.start() if at else 0))

    def _kernel(self, block: Block) -> Kernel | None:
        header = self._header_of(block)
        if header is None:
            return None
        return Kernel(
            name=header.name,
            qualified_name=self._qualified(block, header),
            parameters=header.parameters,
            start=block.start,
            end=block.end,
            body_start=block.body_start,
            body_end=block.body_end,
            line=self.lines.line_of(header.name_start),
            template=header.template,
            template_spelling=header.template_spelling,
            launch_bounds=header.launch_bounds,
            extern_c=header.extern_c or "" in block.scope,
        )

    def _function(self, block: Block) -> Function | None:
        header = read_header(self.text, block.start, block.body_start - 1)
        if header is None:
            return None
        device = "__device__" in header.words
        return Function(
            name=header.name,
            qualified_name=self._qualified(block, header),
            parameters=header.parameters,
            start=block.start,
            end=block.end,
            body_start=block.body_start,
            body_end=block.body_end,
            is_host=not device or "__host__" in header.words,
            is_device=device or "constexpr" in header.words,
            return_type=header.return_type,
            template=header.template,
        )

    def _block_at(self, offset: int) -> Block | None:
        index = bisect_right(self._block_starts, offset) - 1
        if index < 0:
            return None
        block = self.skeleton.blocks[index]
        return block if offset < block.end else None

    @cached_property
    def _block_starts(self) -> list[int]:
        return [block.start for block in self.skeleton.blocks]

    def _launch(self, chevron: int) -> LaunchSite | None:
        text = self.text
        block = self._block_at(chevron)
        floor = block.body_start if block else line_start(text, chevron)
        floor = max(floor, chevron - _MAX_LAUNCH)
        ceiling = block.body_end if block else len(text)
        begin = max(text.rfind(mark, floor, chevron) + len(mark) for mark in (";", "{", "}", "<<<"))
        before = [t for t in lex(text, max(begin, floor), chevron) if t.kind not in (Kind.SPACE, Kind.COMMENT)]
        piece = [text[token.start : token.end] for token in before]
        at, template_text = len(before) - 1, None
        if at >= 0 and piece[at][0] == ">":
            angle = match_angle_back(piece, at)
            if angle < 1:
                return None
            template_text = text[before[angle].end : before[at].end - 1].strip()
            at = angle - 1
        if at < 0 or before[at].kind is not Kind.NAME:
            return None
        name, start = piece[at], before[at].start
        while at >= 2 and piece[at - 1] == "::" and before[at - 2].kind is Kind.NAME:
            at -= 2
            start = before[at].start
        configuration, end, closed = _bracketed(text, chevron, ceiling, "<<<", ">>>")
        arguments: list[str] = []
        if closed:
            gap = re.compile(r"\s*\(").match(text, end, ceiling)
            if gap is not None:
                arguments, end, closed = _bracketed(text, gap.end() - 1, ceiling, "(", ")")
            else:
                closed = False
        padded: list[str | None] = [*configuration[:4], *[None] * (4 - len(configuration))]
        header = read_header(text, block.start, block.body_start - 1) if block else None
        return LaunchSite(
            name=name,
            template_text=template_text,
            grid=padded[0],
            block=padded[1],
            smem=padded[2],
            stream=padded[3],
            arguments=tuple(arguments),
            start=start,
            end=end,
            function=header.name if header else None,
            function_start=block.start if block else None,
            complete=closed,
        )


def _bracketed(text: str, start: int, limit: int, opening: str, closing: str) -> tuple[list[str], int, bool]:
    """The comma-separated parts after the bracket at `start`, where its closing bracket ends, and whether there is one."""
    parts: list[str] = []
    depth = 0
    begin = -1
    last = start
    for token in lex(text, start, limit):
        word = text[token.start : token.end]
        squeezed = word.replace(" ", "").replace("\t", "") if word[0] in "<>" else word
        if begin < 0:
            begin = token.end
            continue
        if depth == 0 and squeezed == closing:
            tail = without_comments(text[begin : token.start]).strip()
            return [*parts, *([tail] if tail or parts else [])], token.end, True
        if token.kind is Kind.PUNCTUATION:
            if word in OPENING:
                depth += 1
            elif word in CLOSING:
                depth -= 1
                if depth < 0:
                    break
            elif word == "," and depth == 0:
                parts.append(without_comments(text[begin : token.start]).strip())
                begin = token.end
            elif depth == 0 and (word in (";", "{") or squeezed == "<<<"):
                break
        last = token.end if token.kind is not Kind.SPACE else last
    return parts, last, False


def constant_definitions(declaration: str) -> list[tuple[str, str]]:
    """`constexpr int A = 4, B = A * 2` -> `[("A", "4"), ("B", "A * 2")]`; only of integer types."""
    declaration = without_comments(declaration)
    head, equals, _ = declaration.partition("=")
    words = set(re.findall(r"\w+", head))
    if (
        not equals
        or not words & _INTEGER_WORDS
        or words & {"float", "double", "template"}
        or re.search(r"[*&(\[<]", head)
    ):
        return []
    found = []
    for part in _split(declaration):
        name, equals, value = part.partition("=")
        names = re.findall(r"\w+", name)
        if names and equals:
            found.append((names[-1], value.strip()))
    return found


def enumerators(declaration: str) -> list[tuple[str, str]]:
    """`enum { A = 4, B }` -> `[("A", "4"), ("B", "(A) + 1")]`."""
    match = re.search(r"\{(.*)\}", without_comments(declaration), re.DOTALL)
    found: list[tuple[str, str]] = []
    for part in _split(match[1]) if match else []:
        name, equals, value = part.partition("=")
        if name.strip().isidentifier():
            default = f"({found[-1][0]}) + 1" if found else "0"
            found.append((name.strip(), value.strip() if equals else default))
    return found


def _split(text: str) -> list[str]:
    return [text[begin:end] for begin, end in split_top_level(text)]


def fold(constants: Mapping[str, str], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Integer values of those expressions that have one, whatever order they stand in."""
    values = dict(known or {})
    pending = {name: text for name, text in constants.items() if name not in values}
    while pending:
        solved = {}
        for name, text in pending.items():
            try:
                solved[name] = evaluate(text, values)
            except ExpressionError:
                continue
        if not solved:
            break
        values |= solved
        pending = {name: text for name, text in pending.items() if name not in solved}
    return values


@lru_cache(maxsize=16)
def parse(text: str) -> SourceModel:
    """The model of a text. Never raises on bad code; the same text gives the same object while it is remembered."""
    skeleton = outline(text)
    made = invocations(text, skeleton, macros_of(text, skeleton))
    if made:
        skeleton = skeleton.without([(invocation.start, invocation.end) for invocation in made], text)
    return SourceModel(text, skeleton, made)


def comment_start(text: str, kernel: Kernel) -> int:
    """Where the comment block directly above a kernel begins, or the kernel's start if there is none.

    Only comments that stand on lines of their own count. One blank line may separate the block from the kernel when
    the block holds a `//dice:` directive, since that is meant for it in any case.
    """
    comments = parse(text).skeleton.comments
    index = bisect_right(comments, kernel.start, key=lambda span: span.start) - 1
    start = kernel.start
    while index >= 0:
        span = comments[index]
        begin = line_start(text, span.start)
        between = text[span.end : start]
        if span.end > start or between.strip() or text[begin : span.start].strip():
            break
        blank_lines = len(re.findall(r"\r\n|\n|\r", between)) > 1
        if blank_lines and not re.match(r"//+\s*dice:", text[span.start : span.end]):
            break
        start = span.start
        index -= 1
    return start


def _told_apart(kernels: list[Kernel]) -> tuple[Kernel, ...]:
    """Overloads, namespaces and `#if` branches bring the same name twice; what is known of one must not be shown for another."""
    names = Counter(kernel.name for kernel in kernels)
    qualified = Counter(kernel.qualified_name for kernel in kernels)
    told = []
    for kernel in kernels:
        if names[kernel.name] > 1:
            name = kernel.qualified_name
            if qualified[name] > 1 or name in names:
                name = f"{name}@{kernel.line + 1}"
            kernel = evolve(kernel, distinct_name=name)
        told.append(kernel)
    return tuple(told)
