"""The `//dice:` lines that say what is known of a kernel's launch, with a first guess for what is not.

`parse_directives` reads from them the launch that they were written from. Lines stay within the width that formatters
keep, because a formatter that breaks a longer one makes an ordinary comment of its end.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from dice_lsp.records import BufferSpec, Confidence, Dim, Kernel, LaunchSpec, Parameter, Reference, Role, Tolerance
from dice_lsp.source.directives import Directive

WIDTH = 80
"""Columns of a line: the limit of clang-format's own styles."""
MAX_GUESSED = 1 << 30
ONE_SIZE = ("1M | 1000003",)
SEVERAL_SIZES = ("1K | 1000", "1K | 777", "64 | 33")
"""First a size for the clock, then one that no block divides."""
_INTEGERS = re.compile(
    r"^(?:unsigned |signed )?(?:int|long|long long|short|char|size_t|u?int(?:8|16|32|64)_t|unsigned)$"
)
# Around what is guessed while a line is put together; no directive holds these characters.
_OPEN, _CLOSE = "\ue000", "\ue001"
_GUESSED = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")


@frozen
class _Piece:
    """One entry of a clause: `n = 1M`, `x[n]`. `guesses` names what in its text is a guess."""

    text: str
    guesses: tuple[str, ...] = ()


def directive_line(kernel: Kernel, spec: LaunchSpec | None) -> str:
    """One line in the directive grammar, e.g. `//dice: n = 1M | 1000003; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>`."""
    (line,) = _lines(_clauses(kernel, spec or LaunchSpec(kernel.name), Directive()), None)
    return _plain(line)


def directive_lines(
    kernel: Kernel, spec: LaunchSpec | None, given: Directive, width: int = WIDTH, *, marks: bool = True
) -> tuple[str, ...]:
    """What `given` does not say yet, as lines of at most `width` columns where that is possible; none if it says all.

    A comment at the end of a line names what in it is guessed, with `marks`.
    """
    marked = _marked(kernel, spec, given, width)
    return tuple(
        _plain(text) + (f"  // guessed: {', '.join(names)}" if names and marks else "") for text, names in marked
    )


def directive_snippet(kernel: Kernel, spec: LaunchSpec | None, given: Directive, width: int = WIDTH) -> tuple[str, ...]:
    """The same lines in the snippet syntax of LSP: what is guessed is a placeholder."""
    snippets = _Snippets()
    return tuple(snippets.of(text) for text, _ in _marked(kernel, spec, given, width))


@frozen
class ClauseText:
    """One clause that could be written: as text, and as a snippet in which what is guessed is a placeholder."""

    word: str
    text: str
    snippet: str
    guesses: tuple[str, ...]


def clause_texts(kernel: Kernel, spec: LaunchSpec | None, given: Directive) -> tuple[ClauseText, ...]:
    """Each clause that `given` does not say yet."""
    found = []
    for word, pieces in _clauses(kernel, spec or LaunchSpec(kernel.name), given):
        marked = f"{word} {', '.join(piece.text for piece in pieces)}".strip()
        names = tuple(name for piece in pieces for name in piece.guesses)
        found.append(ClauseText(word, _plain(marked), _Snippets().of(marked), names))
    return tuple(found)


class _Snippets:
    """Marked text as snippets, whose placeholders are counted from one text to the next."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, text: str) -> str:
        ends = [0, *(at for match in _GUESSED.finditer(text) for at in match.span()), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(ends)]
        return "".join(self._placeholder(p[1:-1]) if p.startswith(_OPEN) else escaped(p) for p in pieces)

    def _placeholder(self, guess: str) -> str:
        self.count += 1
        return f"${{{self.count}:{escaped(guess)}}}"


def guesses(kernel: Kernel, spec: LaunchSpec | None, given: Directive) -> tuple[str, ...]:
    """What of the kernel's launch is not known and would be guessed."""
    return tuple(name for _, names in _marked(kernel, spec, given, WIDTH) for name in names)


def launch_text(spec: LaunchSpec) -> str | None:
    """`<<<grid, block, bytes>>>` of a spec; None where the grid or the block is not known."""
    if spec.grid is None or spec.block is None:
        return None
    shared = "" if spec.smem_bytes in ("", "0") else f", {_expression(spec.smem_bytes)}"
    return f"<<<{size_text(spec.grid)}, {size_text(spec.block)}{shared}>>>"


def size_text(sizes: tuple[str, str, str]) -> str:
    """A grid or a block as a launch clause has it: `256`, `{16, 16}`."""
    kept = [_expression(size) for size in sizes]
    while len(kept) > 1 and kept[-1] == "1":
        kept.pop()
    return kept[0] if len(kept) == 1 else f"{{{', '.join(kept)}}}"


def values_text(values: Sequence[int]) -> str:
    """The values of a size: `16M | 1000003`."""
    return " | ".join(map(number_text, values))


def number_text(value: int) -> str:
    """A number with the suffix that makes it short: `1048576` is `1M`."""
    for suffix, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if value >= scale and value % scale == 0:
            return f"{value // scale}{suffix}"
    return str(value)


def buffer_text(buffer: BufferSpec) -> str:
    """`x[n, 4]: int(0,n)`, without the initial values that its role has anyway."""
    usual = "zeros" if buffer.role is Role.TMP else "normal"
    extents = ", ".join(_expression(extent) for extent in buffer.extents)
    return f"{buffer.name}[{extents}]" + (f": {buffer.init}" if buffer.init != usual else "")


def reference_text(reference: Reference) -> str:
    """What stands behind `ref`."""
    match reference.via:
        case "torch":
            return f"torch: {reference.text}"
        case "python":
            return f"py: {reference.text}"
        case "captured":
            return f'captured "{reference.text}"' if reference.text else "captured"
        case "kernel":
            return "accepted"
        case _:
            return reference.text


def escaped(text: str) -> str:
    """Text that stands for itself in a snippet."""
    return re.sub(r"([\\$}])", r"\\\1", text)


def _plain(text: str) -> str:
    return text.replace(_OPEN, "").replace(_CLOSE, "")


def _guess(text: str, name: str) -> _Piece:
    return _Piece(f"{_OPEN}{text}{_CLOSE}", (name,))


def _stated(spec: LaunchSpec, field: str, text: str, name: str) -> _Piece:
    """What a spec says, which may be a guess of its own."""
    return _guess(text, name) if spec.confidence.get(field) is Confidence.GUESS else _Piece(text)


def _expression(text: str) -> str:
    return " ".join(text.split())


def _marked(
    kernel: Kernel, spec: LaunchSpec | None, given: Directive, width: int
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The lines with their guesses marked, and the names of those."""
    known = spec or LaunchSpec(kernel.name)
    clauses = _clauses(kernel, known, given)
    named = {piece.text: piece.guesses for _, pieces in clauses for piece in pieces if piece.guesses}
    found = []
    for line in _lines(clauses, width):
        names = [name for text, names in named.items() if text in line for name in names]
        found.append((line, tuple(dict.fromkeys(names))))
    return tuple(found)


def _lines(clauses: Sequence[tuple[str, Sequence[_Piece]]], width: int | None) -> list[str]:
    """The clauses as `//dice:` lines; a clause that no line holds is said in several."""
    lines: list[str] = []
    current = ""

    def fits(text: str) -> bool:
        return width is None or len("//dice: ") + len(_plain(text)) <= width

    for word, pieces in clauses:
        whole = f"{word} {', '.join(piece.text for piece in pieces)}".strip()
        if current and fits(f"{current}; {whole}"):
            current = f"{current}; {whole}"
            continue
        if current:
            lines.append(current)
        current = ""
        for piece in pieces if not fits(whole) else ():
            more = f"{current}, {piece.text}" if current else f"{word} {piece.text}".strip()
            if current and not fits(more):
                lines.append(current)
                more = f"{word} {piece.text}".strip()
            current = more
        current = current or whole
    return [f"//dice: {line}" for line in (*lines, current) if line]


def _clauses(kernel: Kernel, spec: LaunchSpec, given: Directive) -> list[tuple[str, list[_Piece]]]:
    """Words and entries of everything that is known, or guessed, and that `given` does not say."""
    sizes = list(_sizes(kernel, spec, given))
    size = _guessed_size((*given.dims, *spec.dims), [name for name, piece in sizes if piece.guesses])
    clauses = [("", [piece for _, piece in sizes])]
    clauses += [(role.value, pieces) for role, pieces in _buffers(kernel, spec, given, size).items()]
    if given.grid is None:
        clauses.append(("launch", [_launch(spec, size)]))
    clauses.append(("with", list(_template(kernel, spec, given))))
    scalars = {name: value for name, value in spec.scalars.items() if name not in given.scalars}
    clauses.append(("set", [_Piece(f"{name} = {_expression(value)}") for name, value in scalars.items()]))
    # A function of another file has no name that a directive could say.
    if spec.reference is not None and given.reference is None and not spec.reference.path:
        clauses.append(("ref", [_Piece(reference_text(spec.reference))]))
    return [(word, pieces) for word, pieces in (*clauses, *_judging(spec, given)) if pieces]


def _guessed_size(dims: Sequence[Dim], guessed: Sequence[str]) -> str:
    """How many elements there may be: the product of the sizes, as long as a GPU can be launched with so many threads."""
    values = {dim.name: max(dim.values, default=1) for dim in dims}
    values |= {name: (1 << 20 if len(guessed) == 1 else 1 << 10) for name in guessed}
    names: list[str] = []
    total = 1
    for name, value in values.items():
        total *= max(value, 1)
        if names and total > MAX_GUESSED:
            break
        names.append(name)
    return " * ".join(names) or "1"


def _sizes(kernel: Kernel, spec: LaunchSpec, given: Directive) -> Iterator[tuple[str, _Piece]]:
    said = {dim.name for dim in given.dims}
    known = {dim.name for dim in spec.dims}
    for dim in spec.dims:
        if dim.name not in said:
            values = _stated(spec, f"dims.{dim.name}", values_text(dim.values), dim.name)
            yield dim.name, _Piece(f"{dim.name} = {values.text}", values.guesses)
    free = [name for name in _integers(kernel) if name not in known | said | spec.scalars.keys()]
    if not free and not known | said and not _integers(kernel) and _has_unknown_sizes(kernel, spec):
        free = ["n"]
    guessed = ONE_SIZE if len(free) == 1 else SEVERAL_SIZES
    for place, name in enumerate(free):
        values = _guess(guessed[min(place, len(guessed) - 1)], name)
        yield name, _Piece(f"{name} = {values.text}", values.guesses)


def _has_unknown_sizes(kernel: Kernel, spec: LaunchSpec) -> bool:
    known = {buffer.name for buffer in spec.buffers if buffer.extents}
    return spec.grid is None or any(p.pointer and p.name not in known for p in kernel.parameters)


def _integers(kernel: Kernel) -> list[str]:
    """The scalars that may count elements."""
    return [item.name for item in kernel.parameters if not item.pointer and _INTEGERS.match(item.element)]


def _buffers(kernel: Kernel, spec: LaunchSpec, given: Directive, size: str) -> Mapping[Role, list[_Piece]]:
    said = {buffer.name for buffer in given.buffers}
    known = {buffer.name: buffer for buffer in spec.buffers if buffer.extents}
    found: dict[Role, list[_Piece]] = {role: [] for role in (Role.IN, Role.OUT, Role.IO, Role.TMP)}
    pointers = [parameter for parameter in kernel.parameters if parameter.pointer]
    for buffer in known.values():
        if "." in buffer.name and buffer.name not in said:
            found[buffer.role].append(_Piece(buffer_text(buffer)))
    for parameter in pointers:
        if parameter.name in said:
            continue
        if parameter.name in known:
            found[known[parameter.name].role].append(_Piece(buffer_text(known[parameter.name])))
        else:
            extent = _guess(size, parameter.name)
            found[_role(parameter)].append(_Piece(f"{parameter.name}[{extent.text}]", extent.guesses))
    return found


def _role(parameter: Parameter) -> Role:
    """What a kernel may do with a buffer whatever its body is: `io` fits one that only writes, too."""
    return Role.IN if parameter.const else Role.IO


def _launch(spec: LaunchSpec, size: str) -> _Piece:
    grid, block = _guess(f"cdiv({size}, 256)", "grid"), _guess("256", "block")
    if spec.grid is not None:
        grid = _stated(spec, "grid", size_text(spec.grid), "grid")
    if spec.block is not None:
        block = _stated(spec, "block", size_text(spec.block), "block")
    shared = _Piece("" if spec.smem_bytes in ("", "0") else _expression(spec.smem_bytes))
    if not shared.text and any("dynamic shared memory" in sentence for sentence in spec.unknown):
        shared = _guess("48K", "shared memory")
    bytes_ = f", {shared.text}" if shared.text else ""
    return _Piece(f"<<<{grid.text}, {block.text}{bytes_}>>>", (*grid.guesses, *block.guesses, *shared.guesses))


def _template(kernel: Kernel, spec: LaunchSpec, given: Directive) -> Iterator[_Piece]:
    for name in kernel.template:
        if name in given.template:
            continue
        value = spec.template.get(name)
        if value is not None:
            yield _Piece(f"{name} = {_expression(value)}")
        else:
            guessed = _guess("float" if is_type_parameter(kernel, name) else "32", name)
            yield _Piece(f"{name} = {guessed.text}", guessed.guesses)


def is_type_parameter(kernel: Kernel, name: str) -> bool:
    """Whether a template parameter stands for a type, not for a value."""
    return re.search(rf"\b(?:typename|class)\s+{re.escape(name)}\b", kernel.template_spelling) is not None


def _judging(spec: LaunchSpec, given: Directive) -> Iterator[tuple[str, list[_Piece]]]:
    """What only a directive says, where it is not `given`."""
    if not given.tolerances:
        for tolerance in spec.tolerances:
            yield "tol", [_Piece(_tolerance(tolerance))]
    for word in ("bytes", "flops", "peak"):
        value = getattr(spec, word)
        if value is not None and getattr(given, word) is None:
            yield word, [_Piece(_expression(value))]
    if spec.cache is not None and given.cache is None:
        yield spec.cache, [_Piece("")]
    if spec.skip and not given.skip:
        yield "skip", [_Piece("")]


def _tolerance(tolerance: Tolerance) -> str:
    if tolerance.exact:
        said = "exact"
    elif tolerance.ulp is not None:
        said = f"ulp {tolerance.ulp}"
    else:
        said = f"{tolerance.rtol!r}" + (f" {tolerance.atol!r}" if tolerance.atol is not None else "")
    return f"{tolerance.buffer} {said}".strip()
