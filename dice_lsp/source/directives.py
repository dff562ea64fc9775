"""The `//dice:` comments of a kernel: how to launch it and how to judge it.

    spec   := ("//dice:" clause {";" clause})+
    clause := dims | bufs | "launch" "<<<" e "," e ["," e] ">>>" | "with" NAME "=" type {"," ..}
            | "set" name "=" e {"," ..} | "ref" (func | "py:" file ":" func | "accepted" | "captured" [file] | "torch:" expr)
            | "tol" [buf] (rtol [atol] | "exact" | "ulp" num) | "exact" | "bytes" e | "flops" e | "peak" word
            | "hot" | "cold" | "skip" | "run" "command"
    dims   := NAME "=" e {"|" e} {"," NAME "=" e {"|" e}}
    bufs   := ("in"|"out"|"io"|"tmp") name "[" e {"," e} "]" [":" init] {"," name "[" .. }
    name   := NAME {"." NAME | "[" number "]"}
    init   := normal | uniform(a,b) | int(a,b) | iota | zeros | ones | perm(n) | sorted | file("x.npy")

`e` is an expression of `source.expressions`. The first value of a dim is the benchmark case, the others are checked
only, and the lists of several dims go together place by place. A size of a launch is `e`, `{x, y}` or `dim3(x, y)`.
A name with dots is a field of a struct that is passed by value.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NoReturn

from attrs import evolve, field, frozen

from dice_lsp.records import BufferSpec, Dim, Fix, Kernel, Origin, Problem, Reference, Role, Tolerance, Weight
from dice_lsp.source.embedded import VIEW_EDGE
from dice_lsp.source.expressions import SIZEOF, ExpressionError, canonical_type, evaluate, names_in
from dice_lsp.source.kernels import SourceModel, comment_start, parse
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, Token, lex, line_start

CLAUSES = ("in", "out", "io", "tmp", "launch", "with", "set", "ref", "tol", "exact", "bytes", "flops", "peak", "hot",
           "cold", "skip", "run")  # fmt: skip
PEAKS = ("mem", "f16", "f16tc", "bf16", "bf16tc", "tf32", "f32", "f64", "f64tc", "f8tc", "int8", "int8tc", "int32")
INITS = ("normal", "uniform", "int", "iota", "zeros", "ones", "perm", "sorted", "file")
_INIT_ARGUMENTS = {"uniform": 2, "int": 2, "perm": 1, "file": 1}
FLOATING = {"float", "double", "__half", "half", "__nv_bfloat16", "nv_bfloat16", "float16_t"}
_MARK = re.compile(r"//+[!/]?\s*dice:")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?")


@frozen
class Part:
    """One entry of a clause at `start:end`: a size, a buffer, an assignment, or the grid, block or bytes of a launch."""

    name: str
    start: int
    end: int
    values: tuple[str, ...] = ()
    """Its expressions as written: the values of a size, the extents of a buffer, x, y and z of a grid."""
    init: str = ""


@frozen
class Clause:
    """One clause of a directive as it stands in the text, `start:end` without its semicolon."""

    word: str
    """What it begins with, one of `CLAUSES`; empty for sizes."""
    start: int
    end: int
    comment: tuple[int, int]
    parts: tuple[Part, ...] = ()


@frozen
class Directive:
    """What the `//dice:` comments of one kernel say; None or empty for what they do not say."""

    dims: tuple[Dim, ...] = ()
    buffers: tuple[BufferSpec, ...] = ()
    grid: tuple[str, str, str] | None = None
    block: tuple[str, str, str] | None = None
    smem_bytes: str | None = None
    template: Mapping[str, str] = field(factory=dict)
    scalars: Mapping[str, str] = field(factory=dict)
    reference: Reference | None = None
    tolerances: tuple[Tolerance, ...] = ()
    bytes: str | None = None
    flops: str | None = None
    peak: str | None = None
    cache: str | None = None
    skip: bool = False
    run: str | None = None
    """The command of a `run` clause: how the user's own program is started for a capture."""
    problems: tuple[Problem, ...] = ()
    """What could not be read, at offsets of the document."""
    remarks: tuple[Problem, ...] = ()
    """What could be read and is not as it should be; none of it is an error."""
    clauses: tuple[Clause, ...] = field(default=(), eq=False)
    comments: tuple[tuple[int, int], ...] = field(default=(), eq=False)


class _Stop(Exception):
    """The rest of a clause cannot be read; its problem has been recorded."""


def directive_ranges(text: str, kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Where the `//dice:` comments of a kernel stand: above it, within its header, at its forward declarations."""
    if "dice:" not in text:
        return ()
    model = parse(text)
    places = [(comment_start(text, kernel), kernel.body_start)]
    for declaration in model.declarations:
        if declaration.name == kernel.name and declaration.template_arguments is None:
            above = comment_start(text, evolve(kernel, start=declaration.start))
            places.append((above, _below(model, declaration.end)))
    found = set()
    for start, end in places:
        for span in model.skeleton.comments_in(start, end):
            if _MARK.match(text, span.start, span.end):
                found.add((span.start, span.end))
    return tuple(sorted(found))


def _below(model: SourceModel, end: int) -> int:
    """The end of the comments that follow a declaration: on its line, and on the lines below unless code follows at once."""
    text = model.text
    line_end = _line_end(text, end)
    same_line = last = line_end
    for span in model.skeleton.comments_in(line_end, len(text)):
        between = text[last : span.start]
        if between.strip() or len(re.findall(r"\r\n|\n|\r", between)) > 1:
            break
        last = span.end
    following = re.compile(r"(?:\r\n|\n|\r)?([^\r\n]*)").match(text, last)
    return same_line if following is not None and following[1].strip() else last


def _line_end(text: str, offset: int) -> int:
    match = re.compile(r"[\r\n]").search(text, offset)
    return match.start() if match else len(text)


def parse_directives(text: str, kernel: Kernel, *, without: Collection[int] = ()) -> Directive:
    """What the `//dice:` comments of a kernel of `text` say, and what is wrong with them.

    Clauses that begin at one of the offsets `without` are passed over, as if they were not there.
    """
    ranges = directive_ranges(text, kernel)
    if not ranges:
        return Directive()
    reader = _Reader(text, kernel, parse(text), frozenset(without))
    for start, end in ranges:
        reader.comment(start, end)
    reader.finish()
    problems, remarks = (tuple(sorted(of, key=lambda item: item.start)) for of in (reader.problems, reader.remarks))
    return evolve(reader.directive, problems=problems, remarks=remarks, clauses=tuple(reader.clauses), comments=ranges)


def directive_comments(model: SourceModel) -> tuple[tuple[int, int], ...]:
    """Every `//dice:` comment of a text, whether a kernel is there for it or not."""
    if "dice:" not in model.text:
        return ()
    spans = model.skeleton.comments
    return tuple((span.start, span.end) for span in spans if _MARK.match(model.text, span.start, span.end))


def mark_end(text: str, start: int, end: int) -> int | None:
    """Where the clauses of the comment `start:end` begin; None when it is no directive."""
    match = _MARK.match(text, start, end)
    return None if match is None else match.end()


def stray_directives(model: SourceModel, used: Collection[tuple[int, int]]) -> tuple[Problem, ...]:
    """A warning for each `//dice:` comment that is not among `used`, those that belong to a kernel."""
    found = []
    for start, end in directive_comments(model):
        if (start, end) in used:
            continue
        kernel = model.kernel_at(start)
        inside = kernel is not None and kernel.body_start <= start < kernel.body_end
        fixes = [Fix("remove the directive", (whole_comment(model.text, start, end),))]
        if kernel is not None and inside:
            reason = f"it stands inside of {kernel.name}: put it above the kernel"
            at, lead, indent = insertion_point(model.text, kernel)
            moved = (at, at, f"{lead}{indent}{model.text[start:end]}\n")
            fixes.insert(0, Fix(f"move it above {kernel.name}", (moved, whole_comment(model.text, start, end))))
        else:
            below = next((f.name for f in model.functions if f.start >= end), None)
            closest = below is not None and not model.text[end : _start_of(model, below, end)].strip()
            reason = f"{below} is no kernel" if closest else "no kernel follows it"
            reason += ": put it directly above a __global__ function"
        message = f"this directive is read for no kernel, because {reason}"
        found.append(Problem(message, start, end, None, tuple(fixes), Weight.WARNING))
    return tuple(found)


def _start_of(model: SourceModel, name: str, at: int) -> int:
    return next(function.start for function in model.functions if function.name == name and function.start >= at)


def whole_comment(text: str, start: int, end: int) -> tuple[int, int, str]:
    """The edit that takes a comment away, with its line where nothing else is on it."""
    begin, stop = line_start(text, start), _line_end(text, end)
    if text[begin:start].strip(" \t") or text[end:stop].strip(" \t"):
        blanks = len(text[begin:start]) - len(text[begin:start].rstrip(" \t"))
        return start - blanks, end, ""
    match = re.compile(r"\r\n|\n|\r").match(text, stop)
    return begin, match.end() if match else stop, ""


def without_clause(text: str, clause: Clause) -> tuple[int, int, str]:
    """The edit that takes a clause away, with the comment where it was all of it."""
    start, end = clause.comment
    begin = mark_end(text, start, end) or start
    after = re.compile(r"[ \t]*;[ \t]*").match(text, clause.end, end)
    before = re.search(r"[ \t]*;[ \t]*$", text[begin : clause.start])
    rest = text[after.end() if after else clause.end : end]
    if rest.strip() and not rest.lstrip().startswith("//"):
        return clause.start, after.end() if after else clause.end, ""
    if before is not None:
        return begin + before.start(), clause.end, ""
    return (clause.start, clause.end, "") if rest.strip() else whole_comment(text, start, end)


class _Reader:
    def __init__(self, text: str, kernel: Kernel, model: SourceModel, without: Collection[int]) -> None:
        self.text, self.kernel, self.model, self.without = text, kernel, model, without
        self.directive = Directive()
        self.problems: list[Problem] = []
        self.remarks: list[Problem] = []
        self.clauses: list[Clause] = []
        self.parts: list[Part] = []
        self.span = (0, 0)
        self.again: list[tuple[str, Token]] = []
        """What is said twice, with the first token of the clause that says it again."""
        self.tokens: list[Token] = []
        self.at = 0
        self.limit = 0
        self.raw_dims: dict[str, list[tuple[str, int, int]]] = {}
        self.dim_at: dict[str, tuple[int, int]] = {}
        self.expressions: list[tuple[str, int, int]] = []
        self.seen: dict[str, int] = {}

    # Reading of tokens

    def comment(self, start: int, end: int) -> None:
        mark = _MARK.match(self.text, start, end)
        assert mark is not None
        self.span = (start, end)
        tokens = [t for t in lex(self.text, mark.end(), end) if t.kind not in (Kind.SPACE, Kind.COMMENT)]
        clause: list[Token] = []
        depth = 0
        for token in tokens:
            piece = self.piece(token)
            depth += (piece in OPENING) - (piece in CLOSING)
            if piece == ";" and depth <= 0:
                self.clause(clause, token.start)
                clause, depth = [], 0
            else:
                clause.append(token)
        self.clause(clause, tokens[-1].end if tokens else end)

    def clause(self, tokens: list[Token], limit: int) -> None:
        if not tokens or tokens[0].start in self.without:
            return
        self.tokens, self.at, self.limit, self.parts = tokens, 0, limit, []
        try:
            self.read_clause()
            if self.at < len(self.tokens):
                self.fail(f"unexpected `{self.peek()}`", self.tokens[self.at].start, self.tokens[-1].end)
        except _Stop:
            pass
        first = self.piece(tokens[0])
        word = "" if self.piece(tokens[min(1, len(tokens) - 1)]) == "=" or first not in CLAUSES else first
        self.clauses.append(Clause(word, tokens[0].start, tokens[-1].end, self.span, tuple(self.parts)))

    def piece(self, token: Token) -> str:
        return self.text[token.start : token.end]

    def peek(self, ahead: int = 0) -> str:
        return self.piece(self.tokens[self.at + ahead]) if self.at + ahead < len(self.tokens) else ""

    def take(self) -> Token:
        if self.at >= len(self.tokens):
            self.fail("the clause ends too early", self.tokens[0].start, self.tokens[-1].end)
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, piece: str) -> Token:
        if self.peek() != piece:
            start, end = self.place()
            found = f"`{self.peek()}`" if self.peek() else "the end of the clause"
            self.fail(f"expected `{piece}` but found {found}", start, end)
        return self.take()

    def place(self) -> tuple[int, int]:
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return token.start, token.end

    def part(self, name: str, begin: int, values: Iterable[str], init: str = "") -> None:
        """Note what was read from the token `begin` on as one entry of the clause."""
        start, end = self.tokens[begin].start, self.tokens[self.at - 1].end
        self.parts.append(Part(name, start, end, tuple(values), init))

    def name(self, what: str) -> Token:
        if self.at >= len(self.tokens) or self.tokens[self.at].kind is not Kind.NAME:
            start, end = self.place()
            self.fail(f"expected {what} but found `{self.peek() or 'the end of the clause'}`", start, end)
        return self.take()

    def field(self, what: str) -> tuple[str, Token]:
        """The name of a parameter, or of a field of one: `n`, `p.size[1]`; and a token that spans it."""
        first = self.name(what)
        label, end = self.piece(first), first.end
        while self.peek() in (".", "["):
            if self.peek() == "[":
                # `x[4]` is a buffer of four elements, `p.x[4] =` the fifth element of a field.
                if self.peek(2) != "]" or self.peek(3) not in ("=", ".", "[") or "." not in label:
                    break
                label += f"[{self.peek(1)}]"
                self.at += 3
            else:
                self.take()
                label += "." + self.piece(self.name("the name of a field"))
            end = self.tokens[self.at - 1].end
        return label, Token(first.kind, first.start, end)

    def report(self, message: str, start: int, end: int, fix: str | None = None, fixes: tuple[Fix, ...] = ()) -> None:
        self.problems.append(Problem(message, start, end, fix, fixes))

    def fail(self, message: str, start: int, end: int, fix: str | None = None, fixes: tuple[Fix, ...] = ()) -> NoReturn:
        self.report(message, start, end, fix, fixes)
        raise _Stop

    def unknown(self, what: str, token: Token, choices: Iterable[str]) -> None:
        """Report a word that is none of `choices`, with the nearest one as its fix."""
        choices = list(choices)
        word = self.piece(token)
        near = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
        hint = f": did you mean `{near[0]}`?" if near else f": known are {', '.join(choices)}" if choices else ""
        self.report(f"unknown {what} `{word}`{hint}", token.start, token.end, near[0] if near else None)

    def expression(self, *stops: str) -> tuple[str, int, int]:
        """The text up to one of `stops` outside all brackets; checked when all dims are known."""
        begin, depth = self.at, 0
        while self.at < len(self.tokens):
            piece = self.peek()
            if depth == 0 and _squeezed(piece) in stops:
                break
            depth += (piece in OPENING) - (piece in CLOSING)
            if depth < 0:
                break
            self.at += 1
        if self.at == begin:
            start, end = self.place()
            self.fail("expected an expression", start, end)
        start, end = self.tokens[begin].start, self.tokens[self.at - 1].end
        return self.text[start:end], start, end

    def checked(self, *stops: str) -> str:
        expression = self.expression(*stops)
        self.expressions.append(expression)
        return expression[0]

    def rest(self) -> str:
        """Everything up to the end of the clause, as written."""
        if self.at >= len(self.tokens):
            self.fail("the clause ends too early", self.tokens[0].start, self.tokens[-1].end)
        start = self.tokens[self.at].start
        self.at = len(self.tokens)
        return self.text[start : self.tokens[-1].end]

    def once(self, what: str, token: Token) -> None:
        if what in self.seen:
            self.again.append((what, token))
        self.seen[what] = token.start

    def set(self, **changes: object) -> None:
        self.directive = evolve(self.directive, **changes)  # type: ignore[arg-type]

    # The clauses

    def read_clause(self) -> None:
        token = self.tokens[0]
        word = self.piece(token)
        if self.peek(1) == "=" and token.kind is Kind.NAME:
            self.dims()
            return
        self.at = 1
        match word:
            case "in" | "out" | "io" | "tmp":
                self.buffers(Role(word))
            case "launch":
                self.once("launch", token)
                self.launch()
            case "with":
                self.assignments("template parameter", self.kernel.template)
            case "set":
                self.assignments("scalar parameter", [p.name for p in self.kernel.parameters if not p.pointer])
            case "ref":
                self.once("ref", token)
                self.reference()
            case "tol":
                self.tolerance()
            case "exact":
                self.once("the tolerance", token)
                self.set(tolerances=(*self.directive.tolerances, Tolerance("", exact=True)))
            case "bytes" | "flops":
                self.once(word, token)
                self.set(**{word: self.checked()})
            case "peak":
                self.once("peak", token)
                peak = self.take()
                if self.piece(peak) not in PEAKS:
                    self.unknown("peak", peak, PEAKS)
                else:
                    self.set(peak=self.piece(peak))
            case "hot" | "cold":
                self.once("hot or cold", token)
                self.set(cache=word)
            case "skip":
                self.once("skip", token)
                self.set(skip=True)
            case "run":
                self.once("run", token)
                self.set(run=_unquoted(self.rest().strip()))
            case _:
                self.unknown("word", token, CLAUSES)
                raise _Stop

    def dims(self) -> None:
        while True:
            begin = self.at
            token = self.name("the name of a dim")
            name = self.piece(token)
            if name in self.raw_dims or name in self.directive.scalars:
                self.report(f"dim {name} is given twice", token.start, token.end)
            self.expect("=")
            values = [self.expression("|", ",")]
            while self.peek() == "|":
                self.take()
                values.append(self.expression("|", ","))
            self.raw_dims[name] = values
            self.dim_at[name] = (token.start, token.end)
            self.part(name, begin, (text for text, _, _ in values))
            if self.peek() != ",":
                return
            self.take()

    def buffers(self, role: Role) -> None:
        pointers = [parameter.name for parameter in self.kernel.parameters if parameter.pointer]
        while True:
            begin = self.at
            name, token = self.field("the name of a buffer")
            is_field = self.is_field(name)
            if name not in pointers and not is_field:
                self.unknown("buffer", token, pointers)
            elif any(buffer.name == name for buffer in self.directive.buffers):
                self.report(f"buffer {name} is given twice", token.start, token.end)
            self.expect("[")
            extents = [self.checked(",", "]")]
            while self.peek() == ",":
                self.take()
                extents.append(self.checked(",", "]"))
            self.expect("]")
            init = self.init() if self.peek() == ":" else "zeros" if role is Role.TMP else "normal"
            self.part(name, begin, extents, init)
            if name in pointers or is_field:
                parameter = next((p for p in self.kernel.parameters if p.name == name), None)
                if parameter is not None and parameter.const and role in (Role.OUT, Role.IO):
                    self.report(f"{name} is a pointer to const and cannot be `{role}`", token.start, token.end)
                buffer = BufferSpec(name, role, tuple(extents), init, Origin.DIRECTIVE)
                self.set(buffers=(*self.directive.buffers, buffer))
            if self.peek() != ",":
                return
            self.take()

    def is_field(self, name: str) -> bool:
        """Whether a name with dots is a field of a struct that the kernel is passed; its fields are not known here."""
        base, dot, _ = name.partition(".")
        parameter = next((p for p in self.kernel.parameters if p.name == base), None)
        return bool(dot) and parameter is not None and not parameter.pointer and (
            canonical_type(parameter.element) not in SIZEOF
        )  # fmt: skip

    def init(self) -> str:
        self.expect(":")
        token = self.name("an initialiser")
        word = self.piece(token)
        if word not in INITS:
            self.unknown("initialiser", token, INITS)
        arguments: list[str] = []
        if self.peek() == "(":
            self.take()
            while self.peek() not in ("", ")"):
                value, start, end = self.expression(",", ")")
                arguments.append(value)
                if word in ("int", "perm"):
                    self.expressions.append((value, start, end))
                elif word == "uniform" and not _NUMBER.fullmatch(value.replace(" ", "")):
                    self.report(f"`{value}` is not a number", start, end)
                if self.peek() == ",":
                    self.take()
            self.expect(")")
        wanted = _INIT_ARGUMENTS.get(word, 0)
        if word in INITS and len(arguments) != wanted:
            plural = "argument" if wanted == 1 else "arguments"
            self.report(f"`{word}` takes {wanted} {plural}, not {len(arguments)}", token.start, token.end)
        if word == "file" and arguments and not re.fullmatch(r'"[^"]*"', arguments[0]):
            self.report('`file` takes a name in quotes: file("x.npy")', token.start, token.end)
        return f"{word}({','.join(arguments)})" if arguments else word

    def launch(self) -> None:
        start, end = self.place()
        if _squeezed(self.peek()) != "<<<":
            found = f"`{self.peek()}`" if self.peek() else "the end of the clause"
            fixes = () if self.peek() else (Fix("add a launch to complete", ((end, end, f" <<<{self.guess()}>>>"),)),)
            self.fail(f"expected `<<<` but found {found}: write `launch <<<grid, block>>>`", start, end, None, fixes)
        self.take()
        grid = self.launch_part("grid")
        if _squeezed(self.peek()) == ">>>":
            start, end = self.place()
            self.fail(
                "the launch has no block: write `launch <<<grid, block>>>`",
                start,
                end,
                None,
                (Fix("add a block of 256 threads", ((start, start, ", 256"),)),),
            )
        self.expect(",")
        block = self.launch_part("block")
        smem = None
        if self.peek() == ",":
            self.take()
            begin = self.at
            smem = self.checked(",", ">>>")
            self.part("bytes", begin, (smem,))
            if self.peek() == ",":
                self.take()
                self.expression(">>>")  # the stream is always the judge's own
        if _squeezed(self.peek()) != ">>>":
            start, end = self.place()
            found = f"`{self.peek()}`" if self.peek() else "the end of the clause"
            fixes = () if self.peek() else (Fix("add `>>>`", ((end, end, ">>>"),)),)
            self.fail(f"expected `>>>` but found {found}", start, end, None, fixes)
        self.take()
        self.set(grid=grid, block=block, smem_bytes=smem)

    def guess(self) -> str:
        """A grid and a block to start from."""
        sizes = (p.name for p in self.kernel.parameters if not p.pointer and "int" in p.element)
        size = next(iter([*self.raw_dims, *sizes]), None)
        return "1, 256" if size is None else f"cdiv({size}, 256), 256"

    def launch_part(self, what: str) -> tuple[str, str, str]:
        begin = self.at
        sizes = self.size()
        self.part(what, begin, sizes)
        return sizes

    def size(self) -> tuple[str, str, str]:
        braces = self.peek() == "{" or (self.peek() == "dim3" and self.peek(1) in ("(", "{"))
        if not braces:
            return self.checked(",", ">>>"), "1", "1"
        if self.peek() == "dim3":
            self.take()
        closing = OPENING[self.piece(self.take())]
        parts = [self.checked(",", closing)]
        while self.peek() == ",":
            self.take()
            parts.append(self.checked(",", closing))
        token = self.expect(closing)
        if len(parts) > 3:
            self.report("a grid or block has at most 3 sizes", token.start, token.end)
        x, y, z = (*parts, "1", "1")[:3]
        return x, y, z

    def assignments(self, what: str, known: Iterable[str]) -> None:
        known = list(known)
        while True:
            begin = self.at
            name, token = self.field(f"a {what}")
            if name not in known and not (what == "scalar parameter" and self.is_field(name)):
                self.unknown(what, token, known)
            if name in self.directive.template or name in self.directive.scalars or name in self.raw_dims:
                self.report(f"{name} is given twice", token.start, token.end)
            self.expect("=")
            if what == "template parameter":
                start, end = self.template_value()
                value = " ".join(self.text[start:end].split())
                self.set(template={**self.directive.template, name: value})
            else:
                value, start, end = self.expression(",")
                parameter = next((p for p in self.kernel.parameters if p.name == name), None)
                number = _NUMBER.fullmatch(value.replace(" ", ""))
                if "." in name and (number is not None or value == "nullptr"):
                    # The type of a field is not known here; a pointer in a struct may be none.
                    pass
                elif parameter is None or (
                    parameter.element not in FLOATING and not self._template_type(parameter.element)
                ):
                    self.expressions.append((value, start, end))
                elif number is None:
                    self.expressions.append((value, start, end))
                self.set(scalars={**self.directive.scalars, name: value})
            self.part(name, begin, (value,))
            if self.peek() != ",":
                return
            self.take()

    def _template_type(self, element: str) -> bool:
        return element in self.kernel.template

    def template_value(self) -> tuple[int, int]:
        begin, angle, depth = self.at, 0, 0
        while self.at < len(self.tokens):
            piece = self.peek()
            if piece == "," and angle == 0 and depth == 0:
                break
            if piece[0] in "<>" and _squeezed(piece) in ("<", "<<<", ">", ">>", ">>>"):
                angle += piece.count("<") - piece.count(">")
            depth += (piece in OPENING) - (piece in CLOSING)
            self.at += 1
        if self.at == begin:
            start, end = self.place()
            self.fail("expected a type or a value", start, end)
        return self.tokens[begin].start, self.tokens[self.at - 1].end

    def reference(self) -> None:
        token = self.name("a function, `torch:`, `py:`, `accepted` or `captured`")
        word = self.piece(token)
        colon = self.peek() == ":"
        if word == "torch" and colon:
            self.take()
            self.set(reference=Reference("torch", self.rest().strip(), Origin.DIRECTIVE))
        elif word == "py" and colon:
            self.take()
            start = self.place()[0]
            target = self.rest().strip()
            file, _, function = target.rpartition(":")
            if not file or not function.strip().isidentifier():
                self.fail("expected `py:FILE:FUNCTION`", start, start + len(target))
            self.set(reference=Reference("python", f"{file.strip()}:{function.strip()}", Origin.DIRECTIVE))
        elif word == "captured":
            file = self.rest().strip().strip('"') if self.at < len(self.tokens) else ""
            self.set(reference=Reference("captured", file, Origin.DIRECTIVE))
        elif word == "accepted" and self.at == len(self.tokens):
            self.set(reference=Reference("kernel", "", Origin.DIRECTIVE))
        else:
            while self.peek() == "::":
                self.take()
                word = self.piece(self.name("a function"))
            functions = {function.name for function in self.model.functions if function.is_host}
            if word not in functions:
                self.unknown("host function", token, sorted(functions))
            else:
                self.set(reference=Reference("function", word, Origin.DIRECTIVE))

    def tolerance(self) -> None:
        buffer = ""
        writable = [p.name for p in self.kernel.parameters if p.pointer and not p.const]
        words = ("exact", "ulp", "rtol", "atol")
        if self.at < len(self.tokens) and self.tokens[self.at].kind is Kind.NAME and self.peek() not in words:
            token = self.take()
            buffer = self.piece(token)
            if buffer not in writable:
                self.unknown("output", token, [*writable, "exact", "ulp"])
        self.once(f"the tolerance of {buffer}" if buffer else "the tolerance", self.tokens[0])
        match self.peek():
            case "exact":
                self.take()
                tolerance = Tolerance(buffer, exact=True)
            case "ulp":
                self.take()
                value, start, end = self.expression()
                if not value.isdigit():
                    self.fail(f"`{value}` is not a whole number", start, end)
                tolerance = Tolerance(buffer, ulp=int(value))
            case _:
                rtol = self.number()
                atol = self.number() if self.at < len(self.tokens) else None
                tolerance = Tolerance(buffer, rtol=rtol, atol=atol)
        self.set(tolerances=(*self.directive.tolerances, tolerance))

    def number(self) -> float:
        start = self.place()[0]
        if self.peek() in ("rtol", "atol") and self.peek(1) == "=":
            self.at += 2
        piece = self.peek()
        if not _NUMBER.fullmatch(piece):
            end = self.place()[1]
            self.fail(f"expected a tolerance such as 1e-5 but found `{piece or 'the end of the clause'}`", start, end)
        self.take()
        return float(piece.rstrip("fF"))

    # What can only be said when every clause has been read

    def finish(self) -> None:
        for what, token in self.again:
            clause = next(clause for clause in self.clauses if clause.start <= token.start < clause.end)
            fixes = (Fix("remove the second one", (without_clause(self.text, clause),)),)
            self.report(f"{what} is given twice", token.start, token.end, None, fixes)
        self.uneven_dims()
        self.set(dims=tuple(self.read_dims()))
        known = {
            *self.raw_dims,
            *self.model.values,
            *self.kernel.template,
            *(parameter.name for parameter in self.kernel.parameters if not parameter.pointer),
        }
        used: set[str] = set()
        for text, start, end in self.expressions:
            used |= names_in(text)
            try:
                evaluate(text, dict.fromkeys(known, 1))
            except ExpressionError as error:
                unknown = next((name for name in sorted(names_in(text)) if name not in known), None)
                near = difflib.get_close_matches(unknown or "", sorted(known), n=1, cutoff=0.5)
                if unknown and re.search(rf"\b{re.escape(unknown)}\b", text):
                    begin = start + re.search(rf"\b{re.escape(unknown)}\b", text).start()  # type: ignore[union-attr]
                    hint = (
                        f": did you mean `{near[0]}`?" if near else ": give it as a dim, e.g. `" + unknown + " = 1024`"
                    )
                    self.report(
                        f"`{unknown}` has no known value{hint}", begin, begin + len(unknown), near[0] if near else None
                    )
                elif "zero" not in str(error):
                    self.report(str(error), start, end)
        scalars = {parameter.name for parameter in self.kernel.parameters if not parameter.pointer}
        for name, (start, end) in self.dim_at.items():
            others = {
                n for other, values in self.raw_dims.items() if other != name for v in values for n in names_in(v[0])
            }
            if name not in scalars and name not in used and name not in others:
                near = difflib.get_close_matches(name, [*CLAUSES, *sorted(scalars)], n=1, cutoff=0.6)
                hint = f": did you mean `{near[0]}`?" if near else ""
                self.report(
                    f"dim {name} is no parameter of {self.kernel.name} and nothing uses it{hint}",
                    start,
                    end,
                    near[0] if near else None,
                )

    def uneven_dims(self) -> None:
        """Remark on lists of sizes that do not go together. One value alone is meant for every case."""
        longest = max(self.raw_dims, key=lambda name: len(self.raw_dims[name]), default="")
        for name, values in self.raw_dims.items():
            count, wanted = len(values), len(self.raw_dims[longest])
            if 1 < count < wanted:
                text, start, end = values[-1]
                message = (
                    f"{name} has {count} values and {longest} has {wanted}: its last one, {text}, serves for the rest"
                )
                fix = Fix(f"write {text} again", ((end, end, f" | {text}" * (wanted - count)),))
                self.remarks.append(Problem(message, start, end, None, (fix,), Weight.WARNING))

    def read_dims(self) -> Iterable[Dim]:
        """Values of the dims, each place with the same place of the others; a shorter list repeats its last value."""
        longest = max((len(values) for values in self.raw_dims.values()), default=0)
        template = {}
        for name, value in self.directive.template.items():
            try:
                template[name] = evaluate(value, self.model.values)
            except ExpressionError:
                continue
        results: dict[str, list[int]] = {name: [] for name in self.raw_dims}
        failed: set[str] = set()
        for case in range(longest):
            names = {**self.model.values, **template}
            pending = dict(self.raw_dims)
            while pending:
                solved: dict[str, int] = {}
                errors: dict[str, tuple[str, int, int]] = {}
                for name, values in pending.items():
                    expression, start, end = values[min(case, len(values) - 1)]
                    blocked = (names_in(expression) & self.raw_dims.keys()) - {name}
                    try:
                        if blocked & pending.keys():
                            raise ExpressionError(f"the value of dim {name} depends on itself")
                        solved[name] = evaluate(expression, names)
                    except ExpressionError as error:
                        errors[name] = (str(error), start, end)
                for name in solved:
                    _, start, end = pending[name][min(case, len(pending[name]) - 1)]
                    if solved[name] < 0:
                        self.report(f"dim {name} is negative: {solved[name]}", start, end)
                        failed.add(name)
                    results[name].append(solved[name])
                    names[name] = solved[name]
                    del pending[name]
                if not solved:
                    for name, (message, start, end) in errors.items():
                        if name not in failed:
                            self.report(message, start, end)
                        failed.add(name)
                    break
        return [Dim(name, tuple(values), Origin.DIRECTIVE) for name, values in results.items() if name not in failed]


def _unquoted(text: str) -> str:
    """What a string says, without its quotes and the backslashes before quotes and backslashes."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text.strip('"')
    return re.sub(r'\\(["\\])', r"\1", text[1:-1])


def _squeezed(piece: str) -> str:
    return piece.replace(" ", "").replace("\t", "") if piece[:1] in ("<", ">") else piece


def insertion_point(text: str, kernel: Kernel) -> tuple[int, str, str]:
    """Where `//dice:` lines for a kernel are inserted, what must stand before the first, and the indentation of each.

    They stand on lines of their own above the kernel's, which a comment at the start of that line does not change.
    """
    start = line_start(text, kernel.start)
    before = text[start : kernel.start]
    code_before = re.sub(r"/\*.*?\*/", "", before) if "*/" in before else before
    if code_before.strip() or VIEW_EDGE in before:
        # Code, or the quotes of the Python string that holds the kernel.
        return kernel.start, "\n", ""
    return start, "", before[: len(before) - len(before.lstrip(" \t"))]
