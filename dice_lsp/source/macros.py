"""Macros of a text that take arguments: what their invocations outside of functions stand for.

A file of kernels is often written by macros: one defines a kernel per type, another the function that launches it. What
such a line holds is known only when it is expanded, so it is, by the rules of the C preprocessor (ISO C 6.10.3:
arguments, `#`, `##`, rescanning without the macro itself), within bounds.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from attrs import define, frozen

from dice_lsp.source.skeleton import Skeleton
from dice_lsp.source.tokens import Kind, closing, lex, without_comments

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


@define
class Room:
    """What is left to an expansion; what would take more stays as it is written."""

    characters: int = MAX_EXPANSION
    calls: int = MAX_EXPANSION
    """Of macros that take arguments."""


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


def expand(text: str, macros: Mapping[str, Macro], room: Room | None = None) -> str:
    """The text with its macros expanded, white space squeezed; what would grow without bound stays as it is.

    Several texts may share one `room`.
    """
    return "".join(_expanded(_tokens(text), macros, frozenset(), Room() if room is None else room))


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
        close = closing(text, match.end() - 1, min(len(text), match.end() + MAX_EXPANSION))
        if close is None:
            continue
        end = close + 1
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


def _expanded(tokens: list[str], macros: Mapping[str, Macro], hidden: frozenset[str], room: Room) -> Iterator[str]:
    at = 0
    while at < len(tokens):
        word = tokens[at]
        macro = macros.get(word) if word not in hidden else None
        at += 1
        if macro is None or room.characters <= 0 or len(hidden) > 64:
            room.characters -= len(word)
            yield word
            continue
        if macro.parameters is None:
            yield from _expanded(_tokens(macro.body), macros, hidden | {word}, room)
            continue
        arguments, after = call_arguments(tokens, at)
        if arguments is None or room.calls <= 0:
            yield word
            continue
        at = after
        room.calls -= 1
        body = substituted(
            _tokens(macro.body),
            bind(macro, arguments),
            lambda argument: _expanded(argument, macros, hidden, room),
        )
        yield from _expanded(body, macros, hidden | {word}, room)


def call_arguments(tokens: Sequence[str], at: int, limit: int = MAX_EXPANSION) -> tuple[list[list[str]] | None, int]:
    """The arguments of a call whose `(` is the next token at or behind `at`, and where the call ends.

    No arguments are None where there is no call, or none that ends within `limit` tokens. Only parentheses protect a
    comma (ISO C 6.10.3). White space stays within an argument and is cut off at its ends.
    """
    while at < len(tokens) and not tokens[at].strip():
        at += 1
    if at >= len(tokens) or tokens[at] != "(":
        return None, at
    arguments: list[list[str]] = [[]]
    depth = 0
    for index in range(at, min(len(tokens), at + limit)):
        token = tokens[index]
        depth += (token == "(") - (token == ")")
        if depth == 0:
            arguments = [_stripped(argument) for argument in arguments]
            return ([] if arguments == [[]] else arguments), index + 1
        if token == "," and depth == 1:
            arguments.append([])
        elif index > at:
            arguments[-1].append(token)
    return None, at


def _stripped(tokens: list[str]) -> list[str]:
    begin, end = 0, len(tokens)
    while begin < end and not tokens[begin].strip():
        begin += 1
    while begin < end and not tokens[end - 1].strip():
        end -= 1
    return tokens[begin:end]


def bind(macro: Macro, arguments: Sequence[list[str]]) -> dict[str, list[str]]:
    """Parameter -> argument; one that is missing is empty, and the last of a variadic macro takes all that is left."""
    found: dict[str, list[str]] = {}
    for index, name in enumerate(macro.parameters or ()):
        if name.endswith("..."):
            rest: list[str] = []
            for argument in arguments[index:]:
                rest += [",", " ", *argument] if rest else argument
            found[name.removesuffix("...").strip() or "__VA_ARGS__"] = rest
        else:
            found[name] = arguments[index] if index < len(arguments) else []
    return found


def substituted(
    body: Sequence[str],
    arguments: Mapping[str, list[str]],
    expand: Callable[[list[str]], Iterable[str]],
    *,
    gap: str = "",
) -> list[str]:
    """The tokens of a macro's body with its arguments in place, to be looked through again (ISO C 6.10.3.1 to 6.10.3.3).

    An argument is expanded by `expand`, but for `#`, which quotes it with `gap` between its tokens, and beside `##`.
    """
    ready: dict[str, list[str]] = {}
    out: list[str] = []
    at = 0
    while at < len(body):
        token = body[at]
        ahead = at + 1
        while ahead < len(body) and body[ahead] == " ":
            ahead += 1
        following = body[ahead] if ahead < len(body) else ""
        if token == "#" and following in arguments:
            quoted = gap.join(arguments[following]).replace("\\", "\\\\").replace('"', '\\"')
            out.append(f'"{quoted}"')
            at = ahead + 1
        elif token == "##":
            while out and out[-1] == " ":
                out.pop()
            right = arguments.get(following, [following])
            if out and right and out[-1] != ",":
                out[-1] += right[0]
                right = right[1:]
            out += right
            at = ahead + 1
        else:
            if token not in arguments:
                out.append(token)
            elif following == "##":
                # An empty argument holds its place, so that nothing else is pasted to what follows.
                out += arguments[token] or [""]
            else:
                if token not in ready:
                    ready[token] = list(expand(arguments[token]))
                out += ready[token]
            at += 1
    return [token for token in out if token]
