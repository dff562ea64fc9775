"""The host code of a CUDA text as a C++ compiler sees it: macros expanded, headers of the project put in, `#if` decided.

It exists for `source.host_program`, so kernels and functions of the device alone are left out, and so are the words that
say where code runs. Object-like macros that are integer constants keep their names: a size is better called `N` than
4096. What a text does not define is not defined, as when it is compiled without flags. Each place of the result knows
which place of which file it comes from.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from attrs import field, frozen

from dice_lsp.source.conditionals import CONDITION, Conditionals, with_defined
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.source.macros import Macro, bind, call_arguments, read_macro, substituted
from dice_lsp.source.project import ProjectTexts
from dice_lsp.source.tokens import Kind, lex

MAX_TEXT = 600_000
"""Characters of one file; a longer one is no program that starts kernels but a table, or made by a tool."""
MAX_OUTPUT = 2_000_000
MAX_FILES = 80
MAX_EXPANSION = 200_000
"""Tokens that the macros of one text may grow to."""
MAX_DEPTH = 30

PREDEFINED = {
    "__CUDACC__": "1", "__NVCC__": "1", "__cplusplus": "201703L", "__linux__": "1", "__linux": "1", "__unix__": "1",
    "__x86_64__": "1", "__GNUC__": "13", "__LP64__": "1", "CUDART_VERSION": "13000", "CUDA_VERSION": "13000",
    "__CUDACC_VER_MAJOR__": "13", "__CUDACC_VER_MINOR__": "0", "__LINE__": "1", "__FILE__": '"file"',
    "__func__": '"function"', "__FUNCTION__": '"function"', "__host__": "", "__device__": "", "__forceinline__": "",
    "__noinline__": "", "__restrict__": "", "__restrict": "", "__inline__": "", "inline": "", "register": "",
    "EXIT_SUCCESS": "0", "EXIT_FAILURE": "1", "NULL": "nullptr", "RAND_MAX": "2147483647", "INT_MAX": "2147483647",
    "UINT_MAX": "4294967295u", "M_PI": "3.14159265358979323846", "DBL_MAX": "1.7976931348623157e308",
    "FLT_MAX": "3.402823466e38f", "__CONSTANT__": "", "__managed__": "", "__constant__": "", "__declspec": "",
}  # fmt: skip
"""What nvcc and the headers of the system define, as far as it matters to sizes and to `#if`."""
_CALL_LIKE = {"__attribute__", "__align__", "alignas", "__launch_bounds__", "__builtin_align__"}
"""Words that are taken out together with the parentheses behind them."""
_DEFINE = re.compile(r"#\s*define\b")
_UNDEF = re.compile(r"#\s*undef\s+(\w+)")
_INCLUDE = re.compile(r'#\s*include\s*(?:"([^"\r\n]+)"|<([^>\r\n]+)>)')
_HAS = re.compile(r"\b__has_(?:include|builtin|feature|attribute)\s*\([^()]*\)")
_SPLICE = re.compile(r"\\\r?\n")


@frozen
class Place:
    """`offset` in the text of `path`."""

    path: str
    offset: int
    copied: bool = field(default=False, eq=False)
    """Whether the characters behind it follow it there as they do here."""


@frozen(eq=False)
class HostText:
    """The text after the preprocessor (ASCII only, so that bytes are characters), and where its pieces come from."""

    text: str
    starts: tuple[int, ...]
    places: tuple[Place, ...]
    constants: Mapping[str, str]
    """Macros that kept their names: name -> expression."""
    files: tuple[str, ...]
    """All files that it is made of, the text's own first."""

    def place(self, offset: int) -> Place:
        """Where a character of the result comes from; for what a macro made, where the macro is used."""
        index = bisect_right(self.starts, offset) - 1
        if index < 0:
            return Place("", 0)
        place = self.places[index]
        return Place(place.path, place.offset + offset - self.starts[index]) if place.copied else place


class _TooLong(Exception):
    """The macros of a text grow beyond all bounds."""


def host_text(
    text: str, path: str, project: ProjectTexts | None = None, defines: Mapping[str, str] | None = None
) -> HostText | None:
    """The host code of a text that lies at `path`; None where it is too long to be looked at."""
    reader = _Preprocessor(project, {**PREDEFINED, **(defines or {})})
    try:
        reader.file(text, path, 0)
    except _TooLong:
        return None
    return HostText(
        "".join(reader.pieces),
        tuple(reader.starts),
        tuple(reader.places),
        {name: " ".join(_pieces(reader.macros[name].body)) for name in reader.kept if name in reader.macros},
        tuple(reader.files),
    )


class _Preprocessor:
    def __init__(self, project: ProjectTexts | None, defines: Mapping[str, str]) -> None:
        self.project = project
        self.macros: dict[str, Macro] = {
            name: Macro(name, None, body) for name, body in defines.items() if name != "__declspec"
        }
        self.kept: set[str] = set()
        self.varied: set[str] = set()
        """Names that meant something else before: the text that was written out cannot tell which."""
        self.pieces: list[str] = []
        self.starts: list[int] = []
        self.places: list[Place] = []
        self.length = 0
        self.files: list[str] = []
        self.open: list[str] = []
        self.once: set[str] = set()
        self.grown = 0

    def emit(self, piece: str, path: str, offset: int, *, copied: bool = False) -> None:
        self.starts.append(self.length)
        self.places.append(Place(path, offset, copied))
        self.pieces.append(piece)
        self.length += len(piece)
        if self.length > MAX_OUTPUT:
            raise _TooLong

    def file(self, text: str, path: str, depth: int) -> None:
        """The text of one file, its includes put in place."""
        if len(text) > MAX_TEXT:
            raise _TooLong
        if path not in self.files:
            self.files.append(path)
        self.open.append(path)
        conditionals = Conditionals()
        buffered: list[tuple[str, int, bool]] = []
        active = True
        for start, end, is_directive in self.segments(text):
            if not is_directive:
                if active:
                    self.gather(text, start, end, buffered)
                continue
            line = _SPLICE.sub(" ", text[start:end])
            if (condition := CONDITION.match(line)) is not None:
                conditionals.step(condition[1], condition[2], self.macros, self.holds)
                active = conditionals.is_read
            elif active:
                if _INCLUDE.match(line) or _UNDEF.match(line) or _DEFINE.match(line):
                    self.flush(buffered, path)
                self.directive(line, path, depth)
        self.flush(buffered, path)
        self.open.pop()

    def segments(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Code and preprocessor lines in turn; the bodies of kernels and device functions are left out."""
        model = parse(text)
        skipped = [(kernel.start, kernel.end) for kernel in model.kernels]
        skipped += [(f.start, f.end) for f in model.functions if not f.is_host]
        skipped.sort()
        directives = [(span.start, span.end) for span in model.skeleton.directives]
        at, index = 0, 0
        for start, end in directives:
            while index < len(skipped) and skipped[index][1] <= start:
                yield at, max(at, skipped[index][0]), False
                at = max(at, skipped[index][1])
                index += 1
            if index < len(skipped) and skipped[index][0] <= start < skipped[index][1]:
                # A conditional within a kernel stays in step with the others; it says nothing else.
                if at < skipped[index][0]:
                    yield at, skipped[index][0], False
                    at = skipped[index][0]
                if CONDITION.match(text, start, end):
                    yield start, end, True
                at = max(at, end)
                continue
            if at < start:
                yield at, start, False
            yield start, end, True
            at = max(at, end)
        while index < len(skipped):
            yield at, max(at, skipped[index][0]), False
            at = max(at, skipped[index][1])
            index += 1
        yield at, len(text), False

    def gather(self, text: str, start: int, end: int, buffered: list[tuple[str, int, bool]]) -> None:
        for token in lex(text, start, end):
            if token.kind in (Kind.COMMENT, Kind.DIRECTIVE):
                buffered.append((" ", token.start, False))
                continue
            piece = text[token.start : token.end]
            if not piece.isascii():
                piece = piece.encode("ascii", "replace").decode()
            if token.kind is Kind.PUNCTUATION and piece[0] in "<>":
                piece = "".join(piece.split())
            buffered.append((piece, token.start, token.kind is Kind.NAME))

    def flush(self, buffered: list[tuple[str, int, bool]], path: str) -> None:
        """Write out code with its macros expanded."""
        pieces = [entry[0] for entry in buffered]
        run: list[str] = []
        begin = following = at = 0
        macros, kept = self.macros, self.kept
        while at < len(buffered):
            piece, offset, is_name = buffered[at]
            macro = macros.get(piece) if is_name and piece not in kept else None
            text = piece
            after = at + 1
            if is_name and piece in _CALL_LIKE:
                arguments, after = call_arguments(pieces, at + 1, limit=400)
                if arguments is not None:
                    at = after
                    continue
                after = at + 1
            elif macro is not None and macro.parameters is None:
                text = self.written(self.expand(_pieces(macro.body), {piece}))
            elif macro is not None:
                arguments, after = call_arguments(pieces, at + 1, limit=20_000)
                if arguments is None:
                    macro, after = None, at + 1
                else:
                    text = self.written(self.expand(self.call(macro, arguments), {piece}))
            if run and (macro is not None or offset != following):
                self.emit("".join(run), path, begin, copied=True)
                run = []
            if macro is not None:
                self.emit(text, path, offset)
            else:
                if not run:
                    begin = offset
                run.append(piece)
                following = offset + len(piece)
            at = after
        if run:
            self.emit("".join(run), path, begin, copied=True)
        buffered.clear()

    def written(self, tokens: list[str]) -> str:
        kept = []
        skip = 0
        for index, token in enumerate(tokens):
            if index < skip:
                continue
            if token in _CALL_LIKE:
                _, skip = call_arguments(tokens, index + 1, limit=200)
                continue
            kept.append(token)
        return f" {' '.join(kept)} "

    # Macros

    def expand(self, tokens: Sequence[str], hidden: set[str], depth: int = 0) -> list[str]:
        if depth > MAX_DEPTH:
            raise _TooLong
        result: list[str] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            macro = self.macros.get(token)
            if macro is None or token in hidden or token in self.kept:
                result.append(token)
                at += 1
            elif macro.parameters is None:
                result += self.expand(_pieces(macro.body), hidden | {token}, depth + 1)
                at += 1
            else:
                arguments, after = call_arguments(tokens, at + 1, limit=100_000)
                if arguments is None:
                    result.append(token)
                    at += 1
                else:
                    result += self.expand(self.call(macro, arguments), hidden | {token}, depth + 1)
                    at = after
            self.grown += 1
            if self.grown > MAX_EXPANSION or len(result) > MAX_EXPANSION:
                raise _TooLong
        return result

    def call(self, macro: Macro, arguments: Sequence[list[str]]) -> list[str]:
        """The body of a function-like macro with its arguments in place; no token is white space."""
        named = {name: [t for t in tokens if not t.isspace()] for name, tokens in bind(macro, arguments).items()}
        return substituted(_pieces(macro.body), named, lambda argument: self.expand(argument, set(), 1), gap=" ")

    # Preprocessor lines

    def directive(self, line: str, path: str, depth: int) -> None:
        if (macro := read_macro(line)) is not None:
            self.define(macro)
        elif (undef := _UNDEF.match(line)) is not None:
            if self.macros.pop(undef[1], None) is not None and undef[1] in self.kept:
                self.varied.add(undef[1])
            self.kept.discard(undef[1])
        elif re.match(r"#\s*pragma\s+once\b", line):
            self.once.add(path)
        elif (include := _INCLUDE.match(line)) is not None and self.project is not None:
            found = self.project.resolve(path, include[1] or include[2], include[1] is not None)
            if found is None or found in self.open or found in self.once or depth > MAX_DEPTH:
                return
            if len(self.files) >= MAX_FILES:
                return
            text = self.project.text(found)
            if text is not None and len(text) <= MAX_TEXT:
                self.emit("\n", path, 0)
                self.file(text, found, depth + 1)

    def define(self, macro: Macro) -> None:
        name, known = macro.name, self.macros.get(macro.name)
        self.macros[name] = macro
        if macro.parameters is not None:
            self.kept.discard(name)
        elif known is not None and name not in PREDEFINED and _pieces(known.body) != _pieces(macro.body):
            # A name with several meanings in turn stands for what it means at each place.
            if name in self.kept:
                self.varied.add(name)
            self.kept.discard(name)
        elif (
            macro.body and name not in PREDEFINED and name not in self.varied and self.is_constant(_pieces(macro.body))
        ):
            self.kept.add(name)

    def is_constant(self, body: tuple[str, ...]) -> bool:
        """Whether a macro's body is an integer whatever stands around it: a number, a name, or in parentheses."""
        signed = body[1:] if body[0] == "-" else body
        if len(signed) != 1 and (body[0] != "(" or call_arguments(body, 0)[1] != len(body)):
            return False
        values = {token: 1 for token in body if token in self.kept}
        try:
            evaluate(" ".join(body), values)
        except ExpressionError:
            return False
        return not any(token in ("sizeof", "K", "M", "G") for token in body)

    def holds(self, expression: str) -> bool:
        """Whether an `#if` is read; names that are not defined are 0, as in C."""
        expression = _HAS.sub("0", with_defined(expression, self.macros))
        kept, self.kept = self.kept, set()
        try:
            tokens = self.expand(_pieces(expression), set())
        finally:
            self.kept = kept
        names = {token: 0 for token in tokens if re.fullmatch(r"[A-Za-z_]\w*", token)} | {"true": 1}
        try:
            return evaluate(" ".join(tokens), names) != 0
        except ExpressionError:
            return False


@lru_cache(maxsize=4096)
def _pieces(text: str) -> tuple[str, ...]:
    """The tokens of a macro's body. A word before them keeps the lexer from seeing a `#` as a line of its own."""
    found = []
    for token in lex(f"_ {text}"):
        if token.kind in (Kind.SPACE, Kind.COMMENT):
            continue
        piece = f"_ {text}"[token.start : token.end]
        found.append(piece if piece.isascii() else piece.encode("ascii", "replace").decode())
    return tuple(found[1:])
