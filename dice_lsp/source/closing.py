"""Close the blocks that a fill leaves open at its end.

A model that stops one brace early has written the right statements; the missing braces are known from the text around it.
Only braces at the very end are added, and only as many as the whole body lacks: whether the result is right is for the
judge to say.
"""

from dice_lsp.records import Region
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, lex, line_start

MAX_BLOCKS = 8


def close_blocks(region: Region, middle: str) -> str:
    """`middle` with the closing braces that it lacks, each on a line of its own, or `middle` as it is."""
    kernel = region.kernel
    if kernel is None:
        return middle
    text = region.prefix + middle + region.suffix
    start, end = region.start, region.start + len(middle)
    ceiling = kernel.body_end + len(middle) - (region.end - region.start)
    unclosed = _open_brackets(text, kernel.body_start, ceiling)
    own = _open_brackets(text, start, end)
    if not unclosed or not own or len(unclosed) > min(len(own), MAX_BLOCKS):
        return middle
    missing = own[len(own) - len(unclosed) :]
    if any(text[offset] != "{" for offset in missing):
        return middle
    newline = "\r\n" if "\r\n" in text else "\n"
    body = middle.rstrip()
    tail = middle[len(body) :] or newline
    closers = "".join(newline + _indent(text, offset, region) + "}" for offset in reversed(missing))
    at_end_of_region = tail if middle != body else ""
    return body + closers + at_end_of_region


def _open_brackets(text: str, start: int, end: int) -> list[int] | None:
    """Offsets of the brackets that stay open between two offsets; None where one closes nothing or another kind."""
    stack: list[int] = []
    for token in lex(text, start, end):
        if token.kind is not Kind.PUNCTUATION:
            continue
        piece = text[token.start : token.end]
        if piece in OPENING:
            stack.append(token.start)
        elif piece in CLOSING and (not stack or text[stack.pop()] != CLOSING[piece]):
            return None
    return stack


def _indent(text: str, offset: int, region: Region) -> str:
    """The white space that the line of an opening brace begins with."""
    begin = line_start(text, offset)
    if begin < region.start and text[begin : region.start].strip():
        return region.indent
    return text[begin : begin + len(text[begin:offset]) - len(text[begin:offset].lstrip())]
