"""C++ text as tokens, exact and total: the tokens of a text, put one after the other, are the text.

Half-written text is the normal state of a document in an editor, so an unfinished string ends at its line and an
unfinished comment at the end of the text; nothing here raises.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a token is."""

    SPACE = "space"
    COMMENT = "comment"
    DIRECTIVE = "directive"
    """A whole preprocessor line, continuation lines included."""
    STRING = "string"
    CHARACTER = "character"
    NUMBER = "number"
    NAME = "name"
    PUNCTUATION = "punctuation"
    OTHER = "other"


class Token(NamedTuple):
    """`text[start:end]` and what it is."""

    kind: Kind
    start: int
    end: int


RAW_STRING = r'(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=delimiter)"|\Z)'
LINE_COMMENT = r"//[^\r\n\\]*(?:\\(?:\r?\n)?[^\r\n\\]*)*"
BLOCK_COMMENT = r"/\*[\s\S]*?(?:\*/|\Z)"
QUOTED = r'"[^"\\\r\n]*(?:\\(?:\r\n|[\s\S])[^"\\\r\n]*)*"?'
DIRECTIVE_REST = (
    r"[^\r\n\\/\"]*(?:(?:\\(?:\r?\n)?|" + LINE_COMMENT + "|" + BLOCK_COMMENT + "|" + QUOTED + r"|/)[^\r\n\\/\"]*)*"
)
_CHARACTER = r"(?:u8|[uUL])?'[^'\\\r\n]*(?:\\[\s\S][^'\\\r\n]*)*'?"

# Three `<` with only blanks between them are never anything but a launch that a formatter tore apart.
_PUNCTUATION = (
    r"<[ \t]*<[ \t]*<(?!=)|>[ \t]*>[ \t]*>(?!=)|<<=|>>=|<=>|->\*|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||::|##"
    r"|\+=|-=|\*=|/=|%=|&=|\|=|\^=|\.\*|[-+*/%&|^~!=<>?:;,.(){}\[\]#]"
)

_TOKEN = re.compile(
    rf"(?P<space>\s+|\\\r?\n)|(?P<comment>{LINE_COMMENT}|{BLOCK_COMMENT})"
    rf"|(?P<string>{RAW_STRING}|(?:u8|[uUL])?{QUOTED})|(?P<character>{_CHARACTER})"
    r"|(?P<number>\.?[0-9](?:[eEpP][-+]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*)"
    r"|(?P<name>[A-Za-z_$\u0080-\U0010ffff][\w$]*)"
    rf"|(?P<punctuation>{_PUNCTUATION})|(?P<other>[\s\S])"
)
_DIRECTIVE = re.compile(r"(?:#|%:|\?\?=)" + DIRECTIVE_REST)
_KINDS = {kind.value: kind for kind in Kind}


def lex(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Tokens of `text[start:end]`; `start` must not lie inside a comment or a string. Linear in the text."""
    end = len(text) if end is None else end
    line_is_blank = start == 0 or text[start - 1] in "\r\n" or not text[line_start(text, start) : start].strip()
    while start < end:
        match = _DIRECTIVE.match(text, start, end) if line_is_blank and text[start] in "#%?" else None
        if match is not None:
            yield Token(Kind.DIRECTIVE, start, match.end())
            start = match.end()
            continue
        match = _TOKEN.match(text, start, end)
        assert match is not None and match.lastgroup is not None
        # `delimiter` is the group that closes last inside a raw string, so the outer name is asked for first.
        kind = Kind.STRING if match.lastgroup == "delimiter" else _KINDS[match.lastgroup]
        yield Token(kind, start, match.end())
        if kind is Kind.SPACE:
            line_is_blank = line_is_blank or "\n" in match.group() or "\r" in match.group()
        elif kind is not Kind.COMMENT:
            line_is_blank = False
        start = match.end()


def line_start(text: str, offset: int) -> int:
    """Offset of the first character of the line that holds `offset`."""
    newline = text.rfind("\n", 0, offset) + 1
    return max(newline, text.rfind("\r", newline, offset) + 1)


def code(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Tokens that a compiler would see: no white space, no comments."""
    return [token for token in lex(text, start, end) if token.kind not in (Kind.SPACE, Kind.COMMENT)]


OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {close: open_ for open_, close in OPENING.items()}


def closing(text: str, at: int, limit: int | None = None) -> int | None:
    """Offset of the bracket that closes the one at `at`; None where it is not closed before `limit`."""
    depth = 0
    for token in lex(text, at, limit):
        piece = text[token.start : token.end]
        if token.kind is Kind.PUNCTUATION:
            depth += (piece in OPENING) - (piece in CLOSING)
            if depth == 0:
                return token.start
    return None


def split_top_level(text: str, separator: str = ",", *, angles: bool = False) -> list[tuple[int, int]]:
    """Ranges of the parts of `text` between separators that stand outside all brackets.

    With `angles`, `<...>` are brackets too, as in parameter lists. An empty text has no parts.
    """
    parts: list[tuple[int, int]] = []
    depth = angle = 0
    begin = 0
    for token in lex(text):
        piece = text[token.start : token.end]
        if token.kind is not Kind.PUNCTUATION:
            continue
        if piece in OPENING:
            depth += 1
        elif piece in CLOSING:
            depth -= 1
        elif angles and depth == 0 and piece[0] == "<" and piece != "<=":
            angle += piece.count("<")
        elif angles and depth == 0 and piece[0] == ">" and piece != ">=":
            angle = max(angle - piece.count(">"), 0)
        elif piece == separator and depth == 0 and angle == 0:
            parts.append((begin, token.start))
            begin = token.end
    if parts or text.strip():
        parts.append((begin, len(text)))
    return parts


def without_comments(text: str) -> str:
    """`text` with each comment replaced by one space, white space squeezed."""
    if "/" not in text:
        return " ".join(text.split())
    pieces = (" " if token.kind is Kind.COMMENT else text[token.start : token.end] for token in lex(text))
    return " ".join("".join(pieces).split())
