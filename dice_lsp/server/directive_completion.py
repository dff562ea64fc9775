"""What can stand at a place of a `//dice:` comment. Pure: a text, a cursor and what is known of the kernel.

Nothing is offered outside of such a comment, where other servers answer, and nothing where an expression is complete.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from dice_lsp.records import Kernel, LaunchSpec, Parameter
from dice_lsp.server.directive_line import (
    clause_texts,
    escaped,
    is_type_parameter,
    launch_text,
    size_text,
    values_text,
)
from dice_lsp.source.directive_words import INITS, MANUAL, SIZES, WORDS, Word
from dice_lsp.source.directives import CLAUSES, FLOATING, PEAKS, Directive, mark_end, parse_directives
from dice_lsp.source.expressions import SIZEOF, canonical_type
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.references import matched_parameters
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, Token, lex, split_top_level

FUNCTIONS = {"cdiv": "cdiv(a, b): a over b, rounded up", "min": "the smaller one", "max": "the larger one",
             "sizeof": "size of a type in bytes"}  # fmt: skip
COMMON_TYPES = ("float", "double", "__half", "__nv_bfloat16", "int", "unsigned int")
MAX_CONSTANTS = 50
_ONCE = ("launch", "ref", "bytes", "flops", "peak", "hot", "cold", "skip", "run", "exact")
_BUFFER_WORDS = ("in", "out", "io", "tmp")
_WORD_BEFORE = re.compile(r"\w*$")
_WORD_AFTER = re.compile(r"\w*")


@frozen
class Item:
    """One entry of the list. `snippet` is `text` with placeholders, where there are any."""

    label: str
    text: str
    kind: str
    """`word`, `found`, `parameter`, `size`, `constant`, `function`, `type`, `value`, `file`."""
    detail: str = ""
    help: str = ""
    snippet: str | None = None


@frozen
class Completion:
    """What may take the place of `start:end`, which holds the cursor; best first."""

    start: int
    end: int
    items: tuple[Item, ...]


@frozen
class Known:
    """What the file, and the store of captures, say about the kernel beyond the directive itself."""

    model: SourceModel
    kernel: Kernel | None
    directive: Directive
    spec: LaunchSpec | None = None
    captures: Sequence[tuple[str, str]] = ()
    """Name and one line about each recorded run, newest first."""


def complete(text: str, at: int, comment: tuple[int, int], known: Known) -> Completion | None:
    """What can stand at the offset `at`, which lies in the `//dice:` comment at `comment` of `text`."""
    begin = mark_end(text, *comment)
    if begin is None or not begin <= at <= comment[1]:
        return None
    word_start = max(begin, at - len((_WORD_BEFORE.search(text[begin:at]) or [""])[0]))
    tokens = list(lex(text, begin, word_start))
    if tokens and tokens[-1].kind is Kind.COMMENT and "\n" not in text[tokens[-1].start : word_start]:
        return None
    clause = _clause(text, [token for token in tokens if token.kind not in (Kind.SPACE, Kind.COMMENT)])
    word_end = at + len((_WORD_AFTER.match(text, at, comment[1]) or [""])[0])
    place = _Place(text, word_start, word_end, at, comment[1], clause, known)
    items = tuple(place.items())
    if not items:
        return None
    if text[place.start - 1 : place.start] in (":", ";") and not clause:
        # A space after `//dice:` and after a semicolon, where none has been typed.
        spaced = (_spaced(item) for item in items)
        return Completion(place.start, place.end, tuple(spaced))
    return Completion(place.start, place.end, items)


def _spaced(item: Item) -> Item:
    return Item(
        item.label, f" {item.text}", item.kind, item.detail, item.help, f" {item.snippet}" if item.snippet else None
    )


def _clause(text: str, tokens: Sequence[Token]) -> list[Token]:
    """The tokens of the clause that is being written."""
    clause: list[Token] = []
    depth = 0
    for token in tokens:
        piece = text[token.start : token.end]
        depth += (piece in OPENING) - (piece in CLOSING)
        if piece == ";" and depth <= 0:
            clause, depth = [], 0
        else:
            clause.append(token)
    return clause


def help_of(word: Word) -> str:
    """A word as markdown: its form, its meaning, an example, and where the manual tells more."""
    return f"`{word.form}`\n\n{word.meaning}\n\nExample: `//dice: {word.example}`\n\n{MANUAL}, {word.section}"


class _Place:
    """The cursor within a clause. `start:end` is what an item replaces."""

    def __init__(self, text: str, start: int, end: int, at: int, limit: int, clause: list[Token], known: Known) -> None:
        self.text, self.start, self.end, self.at, self.limit = text, start, end, at, limit
        self.known, self.kernel = known, known.kernel
        self.pieces = [text[token.start : token.end] for token in clause]
        self.clause = clause
        self.parameters = known.kernel.parameters if known.kernel is not None else ()

    @property
    def spec(self) -> LaunchSpec | None:
        return self.known.spec

    def items(self) -> Iterable[Item]:
        if not self.pieces:
            return self.first_words()
        word = self.pieces[0]
        if word not in CLAUSES or self.pieces[1:2] == ["="]:
            return self.values() if len(self.pieces) > 1 else ()
        if word in _BUFFER_WORDS:
            return self.buffers(word)
        match word:
            case "launch":
                return self.launch()
            case "with" | "set":
                return self.assignments(word)
            case "ref":
                return self.references()
            case "tol":
                return self.tolerances()
            case "bytes" | "flops":
                return self.expressions() if len(self.pieces) == 1 or self.wants_operand() else ()
            case "peak":
                return self.peaks() if len(self.pieces) == 1 else ()
            case _:
                return ()

    # Where in the clause the cursor is

    def inside(self) -> list[str]:
        """The brackets that are open at the cursor, outermost first."""
        stack: list[str] = []
        for piece in self.pieces:
            if piece in OPENING or _squeezed(piece) == "<<<":
                stack.append(_squeezed(piece))
            elif (piece in CLOSING or _squeezed(piece) == ">>>") and stack:
                stack.pop()
        return stack

    def entry(self) -> list[str]:
        """The pieces since the last comma outside of all brackets, the clause's own word not included."""
        named = self.pieces[0] in CLAUSES and self.pieces[1:2] != ["="]
        found: list[str] = []
        depth = 0
        for piece in self.pieces[1:] if named else self.pieces:
            depth += (piece in OPENING or _squeezed(piece) == "<<<") - (piece in CLOSING or _squeezed(piece) == ">>>")
            if piece == "," and depth == 0:
                found = []
            else:
                found.append(piece)
        return found

    def wants_operand(self) -> bool:
        """Whether an expression goes on here with a name or a number."""
        last = self.clause[-1]
        piece = self.pieces[-1]
        return last.kind is Kind.PUNCTUATION and piece not in CLOSING and _squeezed(piece) != ">>>"

    # What can stand there

    def first_words(self) -> Iterator[Item]:
        directive = self.known.directive
        said = {clause.word for clause in directive.clauses if not clause.start <= self.start <= clause.end}
        if self.kernel is not None:
            here = self.clause_here()
            given = directive if here is None else self.without(here)
            missing = clause_texts(self.kernel, self.spec, given)
            for clause in missing:
                detail = f"guessed: {', '.join(clause.guesses)}" if clause.guesses else "as it was found"
                snippet = clause.snippet if clause.guesses else None
                help_text = help_of(WORDS[clause.word] if clause.word in WORDS else SIZES)
                yield Item(clause.text, clause.text, "found", detail, help_text, snippet)
            for parameter in self.parameters:
                dims = {dim.name for dim in (*given.dims, *(self.spec.dims if self.spec else ()))}
                if self.is_integer(parameter) and parameter.name not in dims | given.scalars.keys():
                    yield Item(
                        f"{parameter.name} =", f"{parameter.name} = ", "size", parameter.spelling, help_of(SIZES)
                    )
        for name, word in WORDS.items():
            if (name in said and name in _ONCE) or ({"hot", "cold"} & said and name in ("hot", "cold")):
                continue
            if self.kernel is not None and name == "with" and not self.kernel.template:
                continue
            alone = name in ("exact", "hot", "cold", "skip")
            text = name if alone else 'run ""' if name == "run" else f"{name} "
            snippet = 'run "$1"' if name == "run" else None
            yield Item(name, text, "word", word.form, help_of(word), snippet)

    def clause_here(self) -> int | None:
        """Where the clause begins whose first word is under the cursor."""
        return next((c.start for c in self.known.directive.clauses if c.start <= self.at <= c.start + 1), None)

    def without(self, start: int) -> Directive:
        """What the other clauses say: one that is still being written says nothing for sure."""
        assert self.kernel is not None
        return parse_directives(self.known.model.text, self.kernel, without=[start])

    def is_integer(self, parameter: Parameter) -> bool:
        element = canonical_type(self.template().get(parameter.element, parameter.element))
        return not parameter.pointer and element in SIZEOF and element not in FLOATING and not element[-1:].isdigit()

    def template(self) -> dict[str, str]:
        return {**(dict(self.spec.template) if self.spec else {}), **self.known.directive.template}

    def template_parameters(self) -> tuple[str, ...]:
        return self.kernel.template if self.kernel is not None else ()

    def buffers(self, word: str) -> Iterator[Item]:
        entry, stack = self.entry(), self.inside()
        if stack:
            if self.wants_operand():
                yield from self.expressions()
            return
        if not entry:
            yield from self.buffer_names(word)
        elif entry[-1] == ":" and len(entry) > 1:
            yield from self.inits(entry[0])

    def buffer_names(self, word: str) -> Iterator[Item]:
        parts = [
            part for clause in self.known.directive.clauses if clause.word in _BUFFER_WORDS for part in clause.parts
        ]
        said = {part.name for part in parts if not part.start <= self.at <= part.end}
        found = {buffer.name: buffer for buffer in self.spec.buffers} if self.spec else {}
        bracket = self.text[self.end : self.end + 1] == "["
        fits: list[Item] = []
        others: list[Item] = []
        for parameter in self.parameters:
            if not parameter.pointer or parameter.name in said or (parameter.const and word in ("out", "io")):
                continue
            buffer = found.get(parameter.name)
            extents = None if buffer is None or not buffer.extents else ", ".join(buffer.extents)
            text = parameter.name if bracket else f"{parameter.name}[{extents or ''}"
            snippet = None
            if not bracket and extents is None:
                snippet = f"{escaped(parameter.name)}[${{1:{self.guessed_size()}}}]"
            elif not bracket:
                text += "]"
            detail = parameter.spelling + (f", [{extents}] as it was found" if extents else "")
            item = Item(parameter.name, text, "parameter", detail, help_of(WORDS[word]), snippet)
            same = buffer.role.value == word if buffer is not None else parameter.const == (word == "in")
            (fits if same else others).append(item)
        yield from (*fits, *others)

    def guessed_size(self) -> str:
        sizes = [dim.name for dim in self.known.directive.dims]
        sizes = sizes or [parameter.name for parameter in self.parameters if self.is_integer(parameter)]
        return " * ".join(sizes[:1]) or "n"

    def inits(self, buffer: str) -> Iterator[Item]:
        parameter = next((p for p in self.parameters if p.name == buffer), None)
        element = "" if parameter is None else self.template().get(parameter.element, parameter.element)
        floating = not element or canonical_type(element) in FLOATING or canonical_type(element) not in SIZEOF
        first = () if floating else ("int", "iota", "perm", "zeros")
        for name in sorted(INITS, key=lambda name: (name not in first, list(INITS).index(name))):
            word = INITS[name]
            if name == "uniform" and not floating:
                continue
            snippet = {
                "uniform": "uniform(${1:0}, ${2:1})",
                "int": f"int(${{1:0}}, ${{2:{self.guessed_size()}}})",
                "perm": f"perm(${{1:{self.guessed_size()}}})",
                "file": 'file("$1.npy")',
            }.get(name)
            text = f"{name}(" if name in ("uniform", "int", "perm") else 'file("")' if name == "file" else name
            yield Item(word.form, text, "value", word.meaning, help_of(word), snippet)

    def launch(self) -> Iterator[Item]:
        stack = self.inside()
        if not stack:
            if len(self.pieces) == 1 or set("".join(self.pieces[1:])) <= {"<"}:
                if len(self.pieces) > 1:
                    self.start = self.clause[1].start
                yield from self.whole_launch()
            return
        if not self.wants_operand():
            return
        if stack == ["<<<"] and self.spec is not None:
            number = sum(1 for piece in self.top_level_of_launch() if piece == ",")
            sizes = (self.spec.grid, self.spec.block, (self.spec.smem_bytes, "1", "1"))[min(number, 2)]
            if self.pieces[-1] == "," or _squeezed(self.pieces[-1]) == "<<<":
                if sizes is not None and (number < 2 or self.spec.smem_bytes != "0"):
                    text = size_text(sizes)
                    yield Item(text, text, "found", "as it was found", help_of(WORDS["launch"]))
        yield from self.expressions()

    def top_level_of_launch(self) -> list[str]:
        found: list[str] = []
        depth = 0
        for piece in self.pieces[2:]:
            depth += (piece in OPENING) - (piece in CLOSING)
            if depth == 0:
                found.append(piece)
        return found

    def whole_launch(self) -> Iterator[Item]:
        found = launch_text(self.spec) if self.spec is not None else None
        if found is not None:
            yield Item(found, found, "found", "as it was found", help_of(WORDS["launch"]))
            return
        grid = f"cdiv({self.guessed_size()}, 256)"
        yield Item(
            f"<<<{grid}, 256>>>", f"<<<{grid}, 256>>>", "found", "a guess", help_of(WORDS["launch"]),
            f"<<<${{1:{grid}}}, ${{2:256}}>>>",
        )  # fmt: skip

    def assignments(self, word: str) -> Iterator[Item]:
        entry = self.entry()
        directive, help_text = self.known.directive, help_of(WORDS[word])
        if not entry:
            here = {p.name for c in directive.clauses for p in c.parts if p.start <= self.at <= p.end}
            names = self.kernel.template if self.kernel is not None and word == "with" else ()
            said = {*directive.template, *directive.scalars, *(dim.name for dim in directive.dims)} - here
            followed = self.text[self.end :].lstrip(" \t").startswith("=")
            for name in names:
                if name not in said:
                    yield Item(name, name if followed else f"{name} = ", "parameter", "template parameter", help_text)
            for parameter in self.parameters if word == "set" else ():
                if parameter.pointer or parameter.name in said:
                    continue
                element = self.template().get(parameter.element, parameter.element)
                fields = [parameter.name]
                if canonical_type(element) not in SIZEOF and element not in self.template_parameters():
                    # A struct that is passed by value is set field by field.
                    known = self.spec.scalars if self.spec is not None else {}
                    fields = [name for name in known if name.startswith(f"{parameter.name}.")] or [f"{parameter.name}."]
                for name in fields:
                    text = name if followed or name.endswith(".") else f"{name} = "
                    yield Item(name, text, "parameter", parameter.spelling, help_text)
        elif word == "with" and entry[-1] == "=" and self.kernel is not None:
            yield from self.template_values(entry[0])
        elif word == "set" and self.wants_operand():
            value = self.spec.scalars.get(entry[0]) if self.spec is not None else None
            if value is not None and entry[-1] == "=":
                yield Item(value, value, "found", "as it was found", help_text)
            yield from self.expressions()

    def template_values(self, name: str) -> Iterator[Item]:
        assert self.kernel is not None
        place = self.kernel.template.index(name) if name in self.kernel.template else -1
        is_type = is_type_parameter(self.kernel, name)
        seen: dict[str, str] = {}
        found = self.spec.template.get(name) if self.spec is not None else None
        if found is not None:
            seen[found] = "as it was found"
        model = self.known.model
        texts = [(s.template_text, s.name) for s in model.launches]
        texts += [(d.template_arguments, d.name) for d in model.declarations]
        for text, owner in texts:
            parts = [text[a:b].strip() for a, b in split_top_level(text, angles=True)] if text else []
            if owner == self.kernel.name and 0 <= place < len(parts):
                seen.setdefault(parts[place], "used in this file")
            elif owner != self.kernel.name and is_type:
                for part in parts:
                    if canonical_type(part) in SIZEOF:
                        seen.setdefault(part, "used in this file")
        for value in COMMON_TYPES if is_type else ():
            seen.setdefault(value, "")
        for value, detail in seen.items():
            yield Item(value, value, "type" if is_type else "value", detail, help_of(WORDS["with"]))
        if not is_type:
            yield from self.constants()

    def references(self) -> Iterator[Item]:
        help_text = help_of(WORDS["ref"])
        if self.pieces[1:2] == ["captured"]:
            yield from self.captures()
            return
        if self.pieces[1:3] == ["torch", ":"]:
            if len(self.pieces) == 3 or self.wants_operand():
                for parameter in self.parameters:
                    if parameter.const or not parameter.pointer:
                        yield Item(parameter.name, parameter.name, "parameter", parameter.spelling, help_text)
            return
        if len(self.pieces) > 1:
            return
        if self.kernel is not None:
            template = self.template()
            for function in self.known.model.functions:
                body = self.known.model.text[function.body_start : function.body_end]
                if not function.is_host or "<<<" in body:
                    continue
                if matched_parameters(function, self.kernel, template) is not None:
                    yield Item(function.name, function.name, "function", "a function with these parameters", help_text)
        yield Item("torch:", "torch: ", "value", "an expression over the inputs, in double precision", help_text)
        yield Item("accepted", "accepted", "value", "the kernel as it was before a fill", help_text)
        yield Item("captured", "captured", "value", "what a recorded run of your program left", help_text)
        yield Item(
            "py:", "py: ", "value", "a function of a Python file", help_text, "py: ${1:reference.py}:${2:function}"
        )

    def captures(self) -> Iterator[Item]:
        if len(self.pieces) > 2 and self.clause[2].kind is not Kind.STRING:
            return
        if len(self.pieces) > 2:
            self.start = self.clause[2].start
        rest = re.compile(r'[^";\r\n]*"?').match(self.text, self.at, self.limit)
        self.end = rest.end() if rest is not None and len(self.pieces) > 2 else self.end
        for name, about in self.known.captures:
            yield Item(f'"{name}"', f'"{name}"', "file", about, help_of(WORDS["ref"]))

    def tolerances(self) -> Iterator[Item]:
        help_text = help_of(WORDS["tol"])
        outputs = [p.name for p in self.parameters if p.pointer and not p.const]
        if len(self.pieces) == 1 or (len(self.pieces) == 2 and self.pieces[1] in outputs):
            if len(self.pieces) == 1:
                for name in outputs:
                    yield Item(name, f"{name} ", "parameter", "for this output alone", help_text)
            yield Item("1e-5", "1e-5", "value", "relative, and absolute where the output is near zero", help_text)
            yield Item("exact", "exact", "value", "bit for bit", help_text)
            yield Item("ulp", "ulp ", "value", "units in the last place", help_text, "ulp ${1:2}")

    def peaks(self) -> Iterator[Item]:
        for name in PEAKS:
            yield Item(name, name, "value", "", help_of(WORDS["peak"]))

    def values(self) -> Iterator[Item]:
        """The values of a size."""
        entry = self.entry()
        if not entry:
            dims = {dim.name for dim in self.known.directive.dims}
            for parameter in self.parameters:
                if self.is_integer(parameter) and parameter.name not in dims:
                    yield Item(
                        f"{parameter.name} =", f"{parameter.name} = ", "size", parameter.spelling, help_of(SIZES)
                    )
            return
        if len(entry) < 2 or not self.wants_operand():
            return
        if entry[-1] == "=":
            dims_found = {dim.name: dim for dim in self.spec.dims} if self.spec is not None else {}
            found = dims_found.get(entry[0])
            written = {dim.name for dim in self.known.directive.dims}
            if found is not None and entry[0] not in written:
                text = values_text(found.values)
                yield Item(text, text, "found", "as it was found", help_of(SIZES))
            else:
                for text in ("1M | 1000003", "1K | 1000"):
                    yield Item(
                        text, text, "value", "a size for the clock, and one that no block divides", help_of(SIZES)
                    )
        yield from self.expressions(without=entry[0])

    def expressions(self, without: str = "") -> Iterator[Item]:
        """Names that have a value in an expression."""
        if self.pieces[-1] == "(" and self.pieces[-2:-1] == ["sizeof"]:
            for name in COMMON_TYPES:
                yield Item(name, name, "type", f"{SIZEOF[canonical_type(name)]} bytes")
            return
        seen = {without}
        directive = self.known.directive
        for dim in (*directive.dims, *(self.spec.dims if self.spec is not None else ())):
            if dim.name not in seen:
                seen.add(dim.name)
                yield Item(dim.name, dim.name, "size", f"= {values_text(dim.values)}")
        for parameter in self.parameters:
            if parameter.name not in seen and self.is_integer(parameter):
                seen.add(parameter.name)
                yield Item(parameter.name, parameter.name, "parameter", parameter.spelling)
        for name in self.kernel.template if self.kernel is not None else ():
            if self.kernel is not None and not is_type_parameter(self.kernel, name):
                value = self.template().get(name)
                yield Item(name, name, "parameter", f"= {value}" if value else "template parameter")
        for name, about in FUNCTIONS.items():
            snippet = {"cdiv": "cdiv(${1:n}, ${2:256})", "sizeof": "sizeof(${1:float})"}.get(name)
            yield Item(name, f"{name}(", "function", about, "", snippet or f"{name}(${{1:a}}, ${{2:b}})")
        yield from self.constants()

    def constants(self) -> Iterator[Item]:
        for name, value in list(self.known.model.values.items())[:MAX_CONSTANTS]:
            yield Item(name, name, "constant", f"= {value}")


def _squeezed(piece: str) -> str:
    return piece.replace(" ", "").replace("\t", "") if piece[:1] in ("<", ">") else piece
