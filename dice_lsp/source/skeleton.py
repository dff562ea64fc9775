"""The outline of a document: which functions stand where, found lexically.

A document is half-written most of the time, and one lost brace must not lose the kernels after it; a document may
also be 100 000 lines long and change with every key. So the outline is one pass of regular expressions that only stop
at comments, strings, braces and preprocessor lines, and everything finer is read from one function at a time.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from attrs import evolve, field, frozen

from dice_lsp.source.tokens import BLOCK_COMMENT, DIRECTIVE_REST, LINE_COMMENT, QUOTED, RAW_STRING, line_start

# A quote after a hexadecimal digit separates digits (1'000), except in u8'a' and case'a'.
_CHARACTER = r"'(?:(?<![0-9a-fA-F]')|(?<=\bu8')|(?<=\bcase'))[^'\\\r\n]*(?:\\[\s\S][^'\\\r\n]*)*'?"
_OPAQUE = rf"{LINE_COMMENT}|{BLOCK_COMMENT}|{QUOTED}|{_CHARACTER}|#{DIRECTIVE_REST}"
_OUTER = re.compile(rf"{_OPAQUE}|[{{}};]")
_INNER = re.compile(rf"{_OPAQUE}|[{{}}]")
_RAW = re.compile(RAW_STRING)
_RAW_START = re.compile(r"(?<![\w])(?:u8|[uUL])?R$")
_CONDITIONAL = re.compile(r"#\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b\s*(\w*)")
_CONDITIONAL_LINE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b", re.MULTILINE)
_LABEL = re.compile(r"\s*(?:public|private|protected)\s*:(?!:)")
_SCOPE = re.compile(
    r"(?:inline\s+)?namespace\b(?P<namespace>[^=;(]*)$"
    r'|extern\s*"C(?:\+\+)?"\s*$'
    r"|(?:template\b.*>\s*)?(?:typedef\s+)?(?:class|struct|union)\b(?P<record>[^()=]*)$",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"\[\[.*?\]\]|\b(?:alignas|__align__|__attribute__|__declspec)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)",
    re.DOTALL,
)
_TEMPLATE_HEAD = re.compile(r"template\s*<[^;{}]*>")
_KERNEL_MARK = re.compile(r"\b__global__\b")
# Lines that may stand above the line of `__global__` and belong to the same definition.
_HEADER_LINE = (
    "template",
    "extern",
    "__launch_bounds__",
    "static",
    "inline",
    "[[",
    "__attribute__",
    "typename",
    "requires",
)
# Of absurdly deep namespaces the inner names are kept, so that their text stays linear in the document.
_MAX_NAMES = 64
# Characters of code: no header is longer; what is, is no code, and looking at all of it for each brace would take forever.
_MAX_HEADER = 4000
_BLANK = " \t\r\n\f\v\ufeff"


@frozen
class Span:
    """`text[start:end]`."""

    start: int
    end: int


@frozen
class Block:
    """A function with a body: `text[start:body_start]` is its header up to and with `{`."""

    start: int
    body_start: int
    body_end: int
    end: int
    scope: tuple[str, ...]
    """Names of the namespaces and classes around it; `extern "C"` is the empty name."""
    complete: bool
    """False when the closing brace was not found."""


@frozen
class Declaration:
    """A statement outside of functions, without its semicolon."""

    start: int
    end: int
    scope: tuple[str, ...]


@frozen
class Skeleton:
    """The outline of one text."""

    blocks: tuple[Block, ...]
    declarations: tuple[Declaration, ...]
    comments: tuple[Span, ...]
    directives: tuple[Span, ...]
    """Preprocessor lines, continuation lines included."""
    opaque: tuple[Span, ...]
    """Comments, strings, preprocessor lines and `#if 0` parts, in order: no code stands in them."""
    opaque_starts: tuple[int, ...] = field(repr=False)
    scopes: tuple[tuple[int, tuple[str, ...]], ...] = ((0, ()),)
    """Where the names of the namespaces and classes around change, in order, and what they are from there on."""

    def scope_at(self, offset: int) -> tuple[str, ...]:
        """Names of the namespaces and classes around `offset`, which lies outside of functions."""
        return self.scopes[max(bisect_right(self.scopes, offset, key=lambda change: change[0]) - 1, 0)][1]

    def is_code(self, offset: int) -> bool:
        """Whether the character at `offset` is code, not part of a comment, a string or a preprocessor line."""
        index = bisect_right(self.opaque_starts, offset) - 1
        return index < 0 or offset >= self.opaque[index].end

    def without(self, spans: Sequence[tuple[int, int]], text: str) -> "Skeleton":
        """The outline with each function and declaration beginning behind those of the spans that it begins with.

        `spans` are in order, such as invocations of macros that stand without a semicolon before a function.
        """

        def begin(start: int, end: int) -> int:
            index = bisect_left(spans, (start, start))
            while index < len(spans) and spans[index][0] == start and spans[index][1] <= end:
                start = spans[index][1]
                while start < end and (text[start] in _BLANK or not self.is_code(start)):
                    start += 1
                index += 1
            return start

        blocks = [evolve(block, start=begin(block.start, block.body_start)) for block in self.blocks]
        declarations = [evolve(item, start=begin(item.start, item.end)) for item in self.declarations]
        return evolve(
            self, blocks=tuple(blocks), declarations=tuple(item for item in declarations if item.start < item.end)
        )

    def block_at(self, offset: int) -> Block | None:
        """The function whose header or body holds `offset`."""
        index = bisect_right(self.blocks, offset, key=lambda block: block.start) - 1
        return self.blocks[index] if index >= 0 and offset < self.blocks[index].end else None

    def code_before(self, text: str, offset: int) -> int | None:
        """Where the last character of code before `offset` stands, or None if there is none."""
        index = bisect_right(self.opaque_starts, offset - 1) - 1
        at = offset - 1
        while at >= 0:
            while index >= 0 and self.opaque[index].start > at:
                index -= 1
            span = self.opaque[index] if index >= 0 else None
            if span is not None and span.start <= at < span.end and text[span.start] != '"':
                at = span.start - 1
            elif text[at] in _BLANK:
                at -= 1
            else:
                return at
        return None

    def comments_in(self, start: int, end: int) -> Iterator[Span]:
        """The comments that begin within `start:end`, in order."""
        for index in range(bisect_left(self.comments, start, key=lambda span: span.start), len(self.comments)):
            if self.comments[index].start >= end:
                break
            yield self.comments[index]


@frozen
class _Condition:
    """An open `#if`: the scopes to go back to at its `#else`, and whether it began inside a function."""

    scopes: tuple[tuple[str, ...], ...]
    in_body: bool


def outline(text: str) -> Skeleton:
    """The outline of a text, whatever it is. Linear in the text."""
    return _Outliner(text).run()


class _Outliner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.comments: list[Span] = []
        self.directives: list[Span] = []
        self.opaque: list[Span] = []
        self.blocks: list[Block] = []
        self.declarations: list[Declaration] = []
        self.scopes: list[tuple[str, ...]] = [()]
        self.changes: list[tuple[int, tuple[str, ...]]] = [(0, ())]
        self.conditions: list[_Condition] = []
        self.marks = [match.start() for match in _KERNEL_MARK.finditer(text)]
        self.mark_at = 0

    def run(self) -> Skeleton:
        text, at = self.text, 0
        header = 0  # where the present declaration may begin
        while (match := _OUTER.search(text, at)) is not None:
            if self.changes[-1][1] is not self.scopes[-1]:
                self.changes.append((at, self.scopes[-1]))
            start, at = match.start(), match.end()
            first = text[start]
            if first == ";":
                self.declare(header, start)
                header = at
            elif first == "}":
                if len(self.scopes) > 1:
                    self.scopes.pop()
                header = at
            elif first == "{":
                near = self.nearest(header, start)
                cut = self.cut_broken_header(near, start)
                long = near != header
                header = cut if cut != near else header
                scope: tuple[str, ...] = ()
                kind = "other"
                if not long or cut != near:
                    kind, scope = self.classify(header, start)
                if kind == "scope":
                    self.scopes.append(scope[-_MAX_NAMES:])
                    header = at
                    continue
                begin, body_start = self.begin_of(header, start), at
                at, state = self.body(at, in_function=kind == "function")
                if kind == "function" and state != "taken_back":
                    complete = state == "closed"
                    end = at if complete else self.last_code(body_start, at)
                    self.blocks.append(Block(begin, body_start, end - complete, end, self.scopes[-1], complete))
                # An initialiser belongs to the declaration that it stands in.
                if kind != "initialiser" or state != "closed":
                    header = at
            else:
                at, directive = self.skip(match, in_body=False)
                if directive == "else":
                    if self.conditions and self.conditions[-1].in_body:
                        # The branch continues a function that has ended in the first branch.
                        at = self.skip_branches(at)
                    elif self.conditions:
                        self.scopes = list(self.conditions[-1].scopes)
                    header = at
                elif directive is not None and self.is_blank(header, start):
                    header = at
        self.declare(header, len(text))
        return Skeleton(
            tuple(self.blocks),
            tuple(self.declarations),
            tuple(self.comments),
            tuple(self.directives),
            tuple(self.opaque),
            tuple(span.start for span in self.opaque),
            tuple(self.changes),
        )

    def nearest(self, header: int, brace: int) -> int:
        """The beginning of a header before `brace`, or where it would be too long; comments in it do not count."""
        at, room, index = brace, _MAX_HEADER, len(self.opaque) - 1
        while index >= 0 and self.opaque[index].end > header:
            span = self.opaque[index]
            room -= at - span.end
            if room < 0:
                return span.end - room
            at = max(span.start, header)
            index -= 1
        return max(header, at - room)

    def skip(self, match: "re.Match[str]", in_body: bool) -> tuple[int, str | None]:
        """Record what is no code; return where it ends and, of a preprocessor line, `if`, `else`, `endif` or `other`."""
        text, start, end = self.text, match.start(), match.end()
        first, word = text[start], None
        if first == "/":
            self.comments.append(Span(start, end))
        elif first == '"':
            # The search found the quote of a raw string first; its prefix stands before it.
            prefix = _RAW_START.search(text, max(0, start - 4), start)
            raw = _RAW.match(text, prefix.start()) if prefix else None
            end = raw.end() if raw else end
        elif first == "#":
            if text[line_start(text, start) : start].strip(_BLANK):
                return start + 1, None
            self.directives.append(Span(start, end))
            conditional = _CONDITIONAL.match(text, start)
            word = "other" if conditional is None else "if" if conditional[1].startswith("if") else "else"
            if conditional is not None and word == "if":
                self.conditions.append(_Condition(tuple(self.scopes), in_body))
                if conditional[1] == "if" and conditional[2] in ("0", "false"):
                    end = self.branch_end(end)
            elif conditional is not None and conditional[1] == "endif":
                word = "endif"
                if self.conditions:
                    self.conditions.pop()
        self.opaque.append(Span(start, end))
        return end, word

    def branch_end(self, at: int) -> int:
        """Where the branch of a condition that begins at `at` ends: before its own `#else`, `#elif` or `#endif`."""
        depth = 0
        for match in _CONDITIONAL_LINE.finditer(self.text, at):
            if match[1].startswith("if"):
                depth += 1
            elif match[1] == "endif" and depth:
                depth -= 1
            elif depth == 0:
                return match.start()
        return len(self.text)

    def skip_branches(self, at: int) -> int:
        """Pass over all further branches of the condition, up to its `#endif`."""
        while True:
            end = self.branch_end(at)
            self.opaque.append(Span(at, end))
            match = _CONDITIONAL_LINE.match(self.text, end)
            if match is None or match[1] == "endif":
                return end
            at = match.end()

    def body(self, at: int, in_function: bool) -> tuple[int, str]:
        """Read a block whose `{` ends at `at`; return its end and how it ended.

        `closed` by its own brace; `broken` where the next kernel begins or at the end of the text; `taken_back` by
        an `#else` of a condition that stood around its beginning.
        """
        text, depth, start = self.text, 1, at
        saved: list[int] = []
        around = len(self.conditions)
        mark = self.next_mark(at)
        while (match := _INNER.search(text, at)) is not None:
            begin = match.start()
            while mark is not None and mark < begin:
                if self.is_code(mark):
                    del self.conditions[around:]
                    return self.rewind(mark, start), "broken"
                mark = self.next_mark(mark + 1)
            first, at = text[begin], match.end()
            if first == "{":
                depth += 1
            elif first == "}":
                depth -= 1
                if depth == 0:
                    return at, "closed"
            else:
                at, directive = self.skip(match, in_body=in_function)
                if directive == "if":
                    saved.append(depth)
                elif directive == "else" and saved:
                    depth = saved[-1]
                elif directive == "else" and around:
                    self.scopes = list(self.conditions[-1].scopes) if self.conditions else self.scopes
                    return at, "taken_back"
                elif directive == "endif":
                    if saved:
                        saved.pop()
                    else:
                        around = max(around - 1, 0)
        while mark is not None:
            if self.is_code(mark):
                return self.rewind(mark, start), "broken"
            mark = self.next_mark(mark + 1)
        return len(text), "broken"

    def next_mark(self, at: int) -> int | None:
        while self.mark_at < len(self.marks) and self.marks[self.mark_at] < at:
            self.mark_at += 1
        return self.marks[self.mark_at] if self.mark_at < len(self.marks) else None

    def is_code(self, offset: int) -> bool:
        """Like `Skeleton.is_code`, for an offset before everything not yet read."""
        index = bisect_right(self.opaque, offset, key=lambda span: span.start) - 1
        return index < 0 or offset >= self.opaque[index].end

    def kernel_begin(self, mark: int, floor: int) -> int:
        """The start of the line on which the definition with `__global__` at `mark` begins, not before `floor`."""
        text = self.text
        begin = line_start(text, mark)
        while begin > floor:
            above = line_start(text, begin - 1)
            line = text[above:begin].strip()
            if not line.startswith(_HEADER_LINE) or line.endswith((";", "}", "{")):
                break
            begin = above
        return max(begin, floor)

    def rewind(self, mark: int, floor: int) -> int:
        """Go back to the beginning of the kernel at `mark`: the block read so far lost a brace, as no block holds a kernel."""
        begin = self.kernel_begin(mark, floor)
        for spans in (self.comments, self.directives, self.opaque):
            while spans and spans[-1].start >= begin:
                spans.pop()
        return begin

    def last_code(self, start: int, end: int) -> int:
        """The end of the code in `text[start:end]`: what a broken function keeps, the next one's comments left out."""
        index = len(self.opaque) - 1
        while end > start:
            while end > start and self.text[end - 1] in _BLANK:
                end -= 1
            while index >= 0 and self.opaque[index].start >= end:
                index -= 1
            span = self.opaque[index] if index >= 0 else None
            if span is None or span.end != end or self.text[span.start] not in "/#" or span.start < start:
                break
            end = span.start
        return end

    def cut_broken_header(self, header: int, brace: int) -> int:
        """Where the header before `brace` really begins, when unfinished text stands before a `__global__` in it."""
        index = bisect_right(self.marks, brace) - 1
        if index < 0 or self.marks[index] < header or not self.is_code(self.marks[index]):
            return header
        mark = self.marks[index]
        before = _TEMPLATE_HEAD.sub(" ", _ATTRIBUTE.sub(" ", self.code_of(header, mark)))
        before = re.sub(r"\w+\s*\((?:[^()]|\([^()]*\))*\)", " ", before)
        if re.fullmatch(r'[\w\s"]*', before) and len(before.split()) <= 6:
            return header
        return self.kernel_begin(mark, header)

    def classify(self, header: int, brace: int) -> tuple[str, tuple[str, ...]]:
        """What the `{` at `brace` opens: a `scope` with its names, a `function`, an `initialiser` or something `other`."""
        head = self.code_of(header, brace)
        if head.count("(") != head.count(")"):
            return "initialiser", ()
        while (label := _LABEL.match(head)) is not None:
            head = head[label.end() :]
        head = _ATTRIBUTE.sub(" ", head).strip(_BLANK)
        scope = _SCOPE.match(head)
        if scope is not None and not head.startswith("extern"):
            names = re.findall(r"\w+", scope["namespace"] or "")
            if scope["record"] is not None:
                plain = re.sub(r"<.*|\bfinal\b", " ", re.split(r"(?<!:):(?!:)", scope["record"])[0], flags=re.DOTALL)
                names = re.findall(r"\w+", plain)[-1:]
            return "scope", (*self.scopes[-1], *names)
        if scope is not None:
            return "scope", (*self.scopes[-1], "")
        if not head:
            return "other", ()
        flat = re.sub(r"operator\s*[^\w\s(]+|operator\s*\(\s*\)", "operator_", head)
        if flat.count("(") != flat.count(")") or "(" not in flat or re.match(r"(?:typedef\s+)?enum\b", flat):
            return "initialiser", ()
        outside = re.sub(r"<[^;{}]*>|\(.*\)", " ", flat, flags=re.DOTALL)
        if "=" in outside or re.search(r"\)\s*(?:noexcept\s*)?:[^:{]*\w\s*$", flat):
            return "initialiser", ()
        return "function", ()

    def code_of(self, start: int, end: int) -> str:
        """`text[start:end]` with comments and preprocessor lines as spaces; strings stay."""
        pieces, at = [], start
        index = max(bisect_right(self.opaque, start, key=lambda span: span.start) - 1, 0)
        while index < len(self.opaque) and (span := self.opaque[index]).start < end:
            if span.end > start and self.text[span.start] in "/#":
                pieces += [self.text[at : max(span.start, at)], " "]
                at = span.end
            index += 1
        return "".join([*pieces, self.text[at:end]])

    def is_blank(self, start: int, end: int) -> bool:
        return end - start <= _MAX_HEADER and not self.code_of(start, end).strip(_BLANK)

    def begin_of(self, start: int, end: int) -> int:
        """The first character of code at or after `start`, past labels of a class."""
        text = self.text
        index = max(bisect_right(self.opaque, start, key=lambda span: span.start) - 1, 0)
        while start < end:
            if text[start] in _BLANK:
                start += 1
                continue
            while index < len(self.opaque) and self.opaque[index].end <= start:
                index += 1
            if index < len(self.opaque) and self.opaque[index].start <= start and text[start] in "/#":
                start = self.opaque[index].end
            elif (label := _LABEL.match(text, start, end)) is not None:
                start = label.end()
            else:
                break
        return min(start, end)

    def declare(self, start: int, end: int) -> None:
        begin = self.begin_of(start, end)
        if begin < end:
            self.declarations.append(Declaration(begin, end, self.scopes[-1]))
