"""Macros of a text that take arguments: what their invocations outside of functions stand for.

A file of kernels is often written by macros: one defines a kernel per type, another the function that launches it. What
such a line holds is known only when it is expanded, so it is, by the rules of the C preprocessor (ISO C 6.10.3:
arguments, `#`, `##`, rescanning without the macro itself), within bounds.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from attrs import frozen

from dice_lsp.source.skeleton import Skeleton
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, lex, without_comments

MAX_EXPANSION = 200_000
"""Characters that one invocation may become."""
MAX_INVOCATIONS = 2000
"""Invocations of one text that are looked at."""

_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(\([^)]*\))?(.*)", re.DOTALL)
_SPLICE = re.compile(r"\\[ \t]*(?:\r\n|\r|\n)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"\b([A-Za-z_]\w*)[ \t]*\(")


@frozen
class Macro:
    """One `#define`; `parameters` is None for one without a parameter list."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    """Continued lines joined, comments removed."""

    @property
    def words(self) -> frozenset[str]:
        """Identifiers of the body that are no parameters."""
        return frozenset(_WORD.findall(self.body)) - frozenset(self.parameters or ())


@frozen
class Invocation:
    """`NAME(arguments)` at `start:end` outside of functions; a semicolon behind it belongs to it."""

    name: str
    start: int
    end: int
    expansion: str


def read_macro(directive: str) -> Macro | None:
    """The macro of a `#define` line, continued lines included; None for any other directive."""
    match = _DEFINE.match(_SPLICE.sub(" ", directive))
    if match is None:
        return None
    parameters = None if match[2] is None else tuple(word.strip() for word in match[2][1:-1].split(",") if word.strip())
    return Macro(match[1], parameters, without_comments(match[3]).strip())


@lru_cache(maxsize=64)
def macros_of(text: str, skeleton: Skeleton) -> Mapping[str, Macro]:
    """Every macro of a text by name; of several definitions the first, as of the branches of an `#if`."""
    found: dict[str, Macro] = {}
    for span in skeleton.directives:
        macro = read_macro(text[span.start : span.end])
        if macro is not None:
            found.setdefault(macro.name, macro)
    return found


def expand(text: str, macros: Mapping[str, Macro]) -> str:
    """The text with its macros expanded, white space squeezed; what would grow without bound stays as it is."""
    return "".join(_expanded(_tokens(text), macros, frozenset(), [MAX_EXPANSION]))


def invocations(text: str, skeleton: Skeleton, macros: Mapping[str, Macro]) -> tuple[Invocation, ...]:
    """Invocations outside of functions that are whole statements once they are expanded, in the order of the text."""
    if all(macro.parameters is None for macro in macros.values()):
        return ()
    found: list[Invocation] = []
    for match in _CALL.finditer(text):
        start = match.start()
        macro = macros.get(match[1])
        if macro is None or macro.parameters is None or (found and start < found[-1].end):
            continue
        if not skeleton.is_code(start):
            continue
        block = skeleton.block_at(start)
        if block is not None and start >= block.body_start:
            continue
        if not _begins_statement(text, start, skeleton, found[-1].end if found else -1):
            continue
        end = _closing(text, match.end() - 1)
        if end is None:
            continue
        behind = re.compile(r"\s*;").match(text, end)
        expansion = expand(text[start:end], macros)
        if not expansion.rstrip().endswith(("}", ";")):
            if behind is None or "{" not in expansion:
                continue
            expansion += ";"
        found.append(Invocation(match[1], start, behind.end() if behind is not None else end, expansion))
        if len(found) == MAX_INVOCATIONS:
            break
    return tuple(found)


def _begins_statement(text: str, start: int, skeleton: Skeleton, after: int) -> bool:
    """Whether nothing but the end of something else stands before `start`."""
    before = skeleton.code_before(text, start)
    return before is None or before < after or text[before] in ";}{:"


def _closing(text: str, open_: int) -> int | None:
    """Where the parenthesis that begins at `open_` has ended."""
    depth = 0
    for token in lex(text, open_, min(len(text), open_ + MAX_EXPANSION)):
        if token.kind is Kind.PUNCTUATION:
            word = text[token.start]
            if word in OPENING:
                depth += 1
            elif word in CLOSING:
                depth -= 1
                if depth == 0:
                    return token.end
    return None


def _tokens(text: str) -> list[str]:
    """Tokens as text; white space and comments are one space each."""
    found: list[str] = []
    # Behind another character a `#` begins no directive.
    text = "0" + text
    for token in lex(text, 1):
        if token.kind in (Kind.SPACE, Kind.COMMENT):
            if found and found[-1] != " ":
                found.append(" ")
        else:
            found.append(text[token.start : token.end])
    return found


def _expanded(tokens: list[str], macros: Mapping[str, Macro], hidden: frozenset[str], room: list[int]) -> Iterator[str]:
    at = 0
    while at < len(tokens):
        word = tokens[at]
        macro = macros.get(word) if word not in hidden else None
        at += 1
        if macro is None or room[0] <= 0 or len(hidden) > 64:
            room[0] -= len(word)
            yield word
            continue
        if macro.parameters is None:
            yield from _expanded(_tokens(macro.body), macros, hidden | {word}, room)
            continue
        open_ = at + 1 if at < len(tokens) and tokens[at] == " " else at
        close = _matching(tokens, open_)
        if close is None:
            yield word
            continue
        arguments = _arguments("".join(tokens[open_ + 1 : close]), macro)
        at = close + 1
        yield from _expanded(_substituted(macro, arguments, macros, hidden, room), macros, hidden | {word}, room)


def _matching(tokens: list[str], open_: int) -> int | None:
    if open_ >= len(tokens) or tokens[open_] != "(":
        return None
    depth = 0
    for index in range(open_, len(tokens)):
        depth += (tokens[index] == "(") - (tokens[index] == ")")
        if depth == 0:
            return index
    return None


def _arguments(inner: str, macro: Macro) -> dict[str, str]:
    """Parameter -> argument as written. Brackets and braces do not protect a comma, parentheses do."""
    depth, begin, parts = 0, 0, []
    for token in lex(inner):
        piece = inner[token.start : token.end]
        depth += (piece == "(") - (piece == ")")
        if piece == "," and depth == 0:
            parts.append(inner[begin : token.start].strip())
            begin = token.end
    parts.append(inner[begin:].strip())
    names = list(macro.parameters or ())
    found: dict[str, str] = {}
    for index, name in enumerate(names):
        if name.endswith("..."):
            found[name.removesuffix("...").strip() or "__VA_ARGS__"] = ", ".join(parts[index:])
        else:
            found[name] = parts[index] if index < len(parts) else ""
    return found


def _substituted(
    macro: Macro, arguments: Mapping[str, str], macros: Mapping[str, Macro], hidden: frozenset[str], room: list[int]
) -> list[str]:
    body = _tokens(macro.body)
    out: list[str] = []
    at = 0
    while at < len(body):
        word = body[at]
        if word == "#":
            following = at + 2 if at + 1 < len(body) and body[at + 1] == " " else at + 1
            if following < len(body) and body[following] in arguments:
                quoted = arguments[body[following]].replace("\\", "\\\\").replace('"', '\\"')
                out.append(f'"{quoted}"')
                at = following + 1
                continue
        if word == "##":
            while out and out[-1] == " ":
                out.pop()
            at += 2 if at + 1 < len(body) and body[at + 1] == " " else 1
            if at < len(body):
                right = _tokens(arguments.get(body[at], body[at])) or [""]
                left = out.pop() if out else ""
                out += [left + right[0], *right[1:]]
                at += 1
            continue
        if word in arguments:
            ahead = at + 2 if at + 1 < len(body) and body[at + 1] == " " else at + 1
            pasted = ahead < len(body) and body[ahead] == "##"
            argument = _tokens(arguments[word])
            out += argument if pasted else list(_expanded(argument, macros, hidden, room))
            at += 1
            continue
        out.append(word)
        at += 1
    return out
