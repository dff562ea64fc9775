"""What the user selected, made into a `Region` that can be replaced, and found again after edits.

A function here answers with one sentence (a `str`) when there is nothing sensible to fill.
"""

from bisect import bisect_right

from attrs import frozen

from dice_lsp.records import Document, Kernel, Region
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.skeleton import Block
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, Token, lex, line_start

ANCHOR_LENGTHS = (400, 150, 60, 24)
"""Code points of context on each side that must be found again, longest first."""


@frozen
class _Place:
    """A function body that a selection lies in; `ceiling` is where its text ends, its closing brace not included."""

    block: Block
    kernel: Kernel
    floor: int
    ceiling: int


def region(document: Document, start: int, end: int) -> Region | str:
    """The region for a selection `start:end`, widened to whole tokens, comments and launches.

    An empty selection is the whole body if the body is empty, else a place to insert at.
    """
    text = document.text
    start, end = sorted((min(max(start, 0), len(text)), min(max(end, 0), len(text))))
    selected = text[start:end]
    inner_start, inner_end = start, end
    if selected.strip():
        inner_start = end - len(selected.lstrip())
        inner_end = start + len(selected.rstrip())
    model = parse(text)
    place = _place(model, inner_start, inner_end)
    if isinstance(place, str):
        return place
    inner_start, inner_end = max(inner_start, place.floor), min(inner_end, place.ceiling)
    if not text[place.floor : place.ceiling].strip():
        return _make(document, place.floor, place.ceiling, place)
    tokens = list(lex(text, place.floor, place.ceiling))
    if not text[inner_start:inner_end].strip():
        return _make(document, *_insertion(text, tokens, max(start, place.floor), min(end, place.ceiling)), place)
    # The braces of the body may be part of the selection; what is inside of them is meant.
    inner = text[inner_start:inner_end]
    inner_start, inner_end = inner_end - len(inner.lstrip()), inner_start + len(inner.rstrip())
    first, last = _snap(text, tokens, inner_start, inner_end)
    return _make(document, tokens[first].start, tokens[last].end, place)


def body_region(document: Document, kernel: Kernel) -> Region:
    """The whole body of a kernel: from just after its `{` to just before its `}`."""
    start, end = kernel.body_start, kernel.body_end
    return Region(document, start, end, kernel, _indent(document.text, start, end, kernel.start))


def lines_region(document: Document, first_line: int, last_line: int) -> Region | str:
    """The region for whole lines, 1-based, both included: what `--lines 12:20` selects."""
    lines = parse(document.text).lines
    first, last = sorted((first_line, last_line))
    if first < 1 or last > lines.line_count:
        return f"lines {first}:{last} are not in the file: it has {lines.line_count} lines"
    return region(document, lines.line_start(first - 1), lines.line_end(last - 1))


def relocate(old: Region, text: str) -> tuple[int, int] | None:
    """Where a region stands in a later text of its document; None if it is gone, changed, or not unique.

    An edit before or after the region moves it. With edits on both sides it is looked for by the text around it.
    """
    before = old.document.text
    if before == text:
        return old.start, old.end
    start = _moved(before, text, old.start, old.end)
    if start is None:
        start = _found_by_anchors(before, text, old.start, old.end)
    if start is None:
        return None
    end = start + old.end - old.start
    place = _place(parse(text), start, end)
    if isinstance(place, str) or (old.kernel is not None and place.kernel.name != old.kernel.name):
        return None
    # Text typed right beside the region may have grown together with its first or last token.
    borders = {place.floor, place.ceiling}
    for token in lex(text, place.floor, place.ceiling):
        if token.kind is Kind.SPACE:
            borders.update(range(token.start, token.end + 1))
        borders.update((token.start, token.end))
    return (start, end) if start in borders and end in borders else None


def _moved(before: str, after: str, start: int, end: int) -> int | None:
    same_front = _common_prefix(before, after)
    if same_front >= end:
        return start
    tail = len(before) - start
    if tail <= len(after) and before[start:] == after[len(after) - tail :]:
        return len(after) - tail
    return None


def _found_by_anchors(before: str, after: str, start: int, end: int) -> int | None:
    for length in ANCHOR_LENGTHS:
        head = before[max(0, start - length) : start]
        needle = head + before[start : end + length]
        if len(needle.strip()) < min(ANCHOR_LENGTHS):
            return None
        at = after.find(needle)
        if at >= 0:
            return at + len(head) if after.find(needle, at + 1) < 0 else None
    return None


def _common_prefix(first: str, second: str) -> int:
    """Length of the common prefix, by halving: slices compare far faster than characters."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _place(model: SourceModel, start: int, end: int) -> _Place | str:
    """The body that holds `start:end`, or one sentence that says what to select instead."""
    text = model.text
    here, there = _block_at(model, start), _block_at(model, max(end - 1, start))
    if here is None or there is None:
        touched = here or there or _block_between(model, start, end)
        name = _name(model, touched) if touched else None
        if name is not None:
            return f"the selection reaches outside of {name}: select lines inside its body"
        if not model.kernels:
            return "there is no kernel in this file: write a __global__ function first"
        return "the selection is outside of every kernel: select lines inside a kernel's body"
    if here is not there:
        return f"the selection spans {_name(model, here)} and {_name(model, there)}: select lines inside one of them"
    kernel = next((k for k in model.kernels if k.start == here.start), None)
    if kernel is None:
        function = next((f for f in model.functions if f.start == here.start), None)
        kind = "device" if function is not None and function.is_device else "host"
        return f"{_name(model, here)} is a {kind} function: select lines inside a kernel's body"
    name = kernel.name
    floor, ceiling = here.body_start, here.body_end
    if not here.complete:
        ceiling = _unfinished_end(model, here)
    if start < floor - 1 or (start < floor and end <= floor):
        return f"the selection covers the signature of {name}: select lines inside its body"
    if end > max(here.end, ceiling):
        return f"the selection reaches outside of {name}: select lines inside its body"
    assert floor <= ceiling <= len(text)
    return _Place(here, kernel, floor, ceiling)


def _name(model: SourceModel, block: Block) -> str:
    for kernel in model.kernels:
        if kernel.start == block.start:
            return kernel.name
    for function in model.functions:
        if function.start == block.start:
            return function.name
    return "a function"


def _block_at(model: SourceModel, offset: int) -> Block | None:
    blocks = model.skeleton.blocks
    index = bisect_right(blocks, offset, key=lambda block: block.start) - 1
    if index < 0:
        return None
    block = blocks[index]
    end = block.end if block.complete else _unfinished_end(model, block)
    return block if offset < end or (not block.complete and offset <= end) else None


def _block_between(model: SourceModel, start: int, end: int) -> Block | None:
    return next((block for block in model.skeleton.blocks if start <= block.start < end), None)


def _unfinished_end(model: SourceModel, block: Block) -> int:
    """An unfinished body owns the white space that follows it: that is where its next line is typed."""
    text, end = model.text, block.end
    while end < len(text) and text[end].isspace():
        end += 1
    return end if end == len(text) else max(block.end, line_start(text, end))


def _insertion(text: str, tokens: list[Token], start: int, end: int) -> tuple[int, int]:
    """A place to insert at, not inside a token; selected white space is replaced up to the end of its last line."""
    for token in tokens:
        if token.start < start < token.end and token.kind is not Kind.SPACE:
            return token.end, token.end
    if text[start - 1 : start + 1] == "\r\n":
        start -= 1
    end = max(start, end)
    while end > start and text[end - 1] in "\r\n":
        end -= 1
    return start, end


def _snap(text: str, tokens: list[Token], start: int, end: int) -> tuple[int, int]:
    """Indices of the first and last token that `start:end` touches, with both halves of each launch it touches."""
    first = next(i for i, token in enumerate(tokens) if token.end > start and token.kind is not Kind.SPACE)
    last = max(i for i, token in enumerate(tokens) if token.start < end and token.kind is not Kind.SPACE)
    last = max(first, last)
    for opening, closing in _chevrons(text, tokens):
        if first <= opening <= last < closing:
            last = closing
        elif opening < first <= closing <= last:
            first = opening
        elif opening < first and last < closing:
            # Inside of the launch configuration: its parts can be filled, the brackets stay outside.
            continue
    return first, last


def _chevrons(text: str, tokens: list[Token]) -> list[tuple[int, int]]:
    """Indices of the `<<<` and `>>>` of each launch."""
    pairs: list[tuple[int, int]] = []
    open_at: int | None = None
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind is not Kind.PUNCTUATION:
            continue
        word = text[token.start : token.end]
        if len(word) >= 3 and set(word) <= {"<", " ", "\t"} and word.count("<") == 3:
            open_at, depth = index, 0
        elif open_at is not None and word in OPENING:
            depth += 1
        elif open_at is not None and word in CLOSING:
            depth -= 1
        elif open_at is not None and depth == 0 and word.count(">") == 3:
            pairs.append((open_at, index))
            open_at = None
    return pairs


def _make(document: Document, start: int, end: int, place: _Place) -> Region:
    indent = _indent(document.text, start, end, place.block.start)
    return Region(document, start, end, place.kernel, indent)


def _indent(text: str, start: int, end: int, function_start: int) -> str:
    """The indentation that the region's code has, or would have; of a new body, one step more than its function's."""
    code_at = end - len(text[start:end].lstrip())
    begin = line_start(text, code_at if code_at < end else start)
    if code_at == end and not text[begin:start].strip() and begin > function_start:
        # A blank place is indented as what stands above it.
        above = text[function_start:begin].rstrip()
        if start - begin > 0 and not above.endswith("{"):
            return text[begin:start]
        begin = line_start(text, function_start + len(above))
        start = function_start + len(above)
    line = text[begin : code_at if code_at < end else start]
    indent = line[: len(line) - len(line.lstrip(" \t\f"))]
    opened = line.rstrip().endswith("{")
    if begin > function_start and not opened:
        return indent
    first = line_start(text, function_start)
    base = text[first:function_start]
    base = indent if begin > function_start else base if not base.strip() else ""
    return base + ("\t" if "\n\t" in text or base.startswith("\t") else "    ")
