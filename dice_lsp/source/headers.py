"""A function's header, read token by token: name, qualifiers, template parameters, parameters."""

import re
from functools import lru_cache

from attrs import evolve, frozen

from dice_lsp.records import Parameter
from dice_lsp.source.expressions import canonical_type
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, Token, code, split_top_level, without_comments

TYPE_WORDS = {
    "void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "wchar_t",
    "__half", "half", "size_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
    "uint", "uchar", "ushort", "ulong",
}  # fmt: skip
_QUALIFIERS = {"const", "volatile", "struct", "class", "typename", "enum", "register"}
_RESTRICT = {"__restrict__", "__restrict", "restrict", "__grid_constant__", "__constant__", "__shared__", "__global"}
_STORAGE = {
    "static", "inline", "extern", "constexpr", "consteval", "virtual", "explicit", "friend", "__inline__", "__inline",
    "__forceinline__", "__noinline__", "__global__", "__device__", "__host__", "__forceinline", "typename", "const",
    "__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "__tile_global__",
}  # fmt: skip
# Words whose parentheses are no parameter list.
_CALL_LIKE = {
    "noexcept", "throw", "__attribute__", "__declspec", "requires", "decltype", "alignas", "__align__", "sizeof",
    "__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "__nv_register_params__", "explicit",
}  # fmt: skip


@frozen
class Header:
    """What stands before a function's `{`."""

    name: str
    name_start: int
    """Offset of the name in the document."""
    qualified: tuple[str, ...]
    """Names before the last `::` of the name as written."""
    parameters: tuple[Parameter, ...]
    words: frozenset[str]
    """All words before the name: qualifiers, storage classes, macros, the return type."""
    return_type: str
    template: tuple[str, ...]
    template_spelling: str
    launch_bounds: str | None
    extern_c: bool
    arguments: str = ""
    """Template arguments written behind the name, as in explicit instantiations."""


def read_header(text: str, start: int, end: int) -> Header | None:
    """The header in `text[start:end]` (without its `{`), or None if it declares no function."""
    header = _read(text[start:end])
    return None if header is None else evolve(header, name_start=header.name_start + start)


# An edit changes one header of a document, the others are found here.
@lru_cache(maxsize=16384)
def _read(text: str) -> Header | None:
    tokens = [token for token in code(text) if token.kind is not Kind.DIRECTIVE]
    end = len(text)
    piece = [text[token.start : token.end] for token in tokens]
    template: tuple[str, ...] = ()
    spelling, at = "", 0
    extern_c = False
    launch_bounds: str | None = None
    while at < len(tokens):
        if piece[at] == "template" and at + 1 < len(tokens) and piece[at + 1] == "<":
            close = match_angle(tokens, piece, at + 1)
            spelling = text[tokens[at + 1].end : tokens[close].end - 1 if close < len(tokens) else end]
            template = template_names(spelling)
            at = close + 1
        elif piece[at] == "extern" and at + 1 < len(tokens) and tokens[at + 1].kind is Kind.STRING:
            extern_c = extern_c or '"C"' in piece[at + 1]
            at += 2
        else:
            break
    groups = _groups(tokens, piece, at)
    chosen: tuple[int, int] | None = None
    cut = len(tokens)
    for open_, close in groups:
        if open_ >= cut:
            break
        word = piece[open_ - 1] if open_ else ""
        if word == "__launch_bounds__":
            launch_bounds = " ".join(without_comments(text[tokens[open_].end : tokens[close].start]).split())
        elif word in _CALL_LIKE or open_ == 0:
            continue
        elif tokens[open_ - 1].kind is Kind.NAME or word == ">" or "operator" in piece[max(0, open_ - 3) : open_]:
            chosen = open_, close
            # What follows a parameter list and a colon initialises members.
            if close + 1 < len(tokens) and piece[close + 1] == ":":
                cut = close
    if chosen is None:
        return None
    open_, close = chosen
    name_at, arguments = open_ - 1, ""
    if piece[name_at] == ">":
        angle = match_angle_back(piece, name_at)
        if angle < 1:
            return None
        arguments = text[tokens[angle].end : tokens[name_at].end - 1].strip()
        name_at = angle - 1
    if tokens[name_at].kind is not Kind.NAME and "operator" in piece[max(0, name_at - 2) : name_at]:
        name_at = max(i for i in range(max(0, name_at - 2), name_at) if piece[i] == "operator")
    first = name_at
    qualified: list[str] = []
    while first >= 2 and piece[first - 1] == "::" and tokens[first - 2].kind is Kind.NAME:
        qualified.insert(0, piece[first - 2])
        first -= 2
    inner_end = tokens[close].start if close < len(tokens) else end
    kinds = (Kind.NAME, Kind.PUNCTUATION)
    before = [text[token.start : token.end] for token in tokens[at:first] if token.kind in kinds]
    return Header(
        name=piece[name_at],
        name_start=tokens[name_at].start,
        qualified=tuple(qualified),
        parameters=read_parameters(text[tokens[open_].end : inner_end]),
        words=frozenset(before),
        return_type=_return_type(before, piece[close + 1 :]),
        template=template,
        template_spelling=" ".join(without_comments(spelling).split()),
        launch_bounds=launch_bounds,
        extern_c=extern_c,
        arguments=arguments,
    )


def _groups(tokens: list[Token], piece: list[str], at: int) -> list[tuple[int, int]]:
    """Indices of each outermost `(` and its `)`; an unclosed group ends with the tokens."""
    groups, stack = [], []
    for index in range(at, len(tokens)):
        if piece[index] in OPENING:
            stack.append(index)
        elif piece[index] in CLOSING and stack:
            open_ = stack.pop()
            if not stack and piece[open_] == "(":
                groups.append((open_, index))
    if stack and piece[stack[0]] == "(":
        groups.append((stack[0], len(tokens)))
    return groups


def match_angle(tokens: list[Token], piece: list[str], at: int) -> int:
    """The index of the `>` that closes the `<` at `at`; `>>` counts twice. The number of tokens if there is none."""
    depth = round_ = 0
    for index in range(at, len(tokens)):
        word = piece[index]
        if word in OPENING:
            round_ += 1
        elif word in CLOSING:
            round_ -= 1
        elif round_ == 0 and word.replace(" ", "") in ("<", "<<<"):
            depth += word.count("<")
        elif round_ == 0 and word[0] == ">" and set(word) <= {">", " ", "\t"}:
            depth -= word.count(">")
            if depth <= 0:
                return index
    return len(tokens)


def match_angle_back(piece: list[str], at: int) -> int:
    """The index of the `<` that the `>` at `at` closes, or -1."""
    depth = 0
    for index in range(at, -1, -1):
        if piece[index][0] == ">" and set(piece[index]) <= {">", " ", "\t"}:
            depth += piece[index].count(">")
        elif piece[index] == "<":
            depth -= 1
            if depth == 0:
                return index
        elif piece[index] in (";", "{", "}"):
            break
    return -1


def template_names(spelling: str) -> tuple[str, ...]:
    """Names of template parameters: `typename T, int N = 4` -> `("T", "N")`."""
    names = []
    spelling = without_comments(spelling)  # which may hold a comma or an equals sign
    for begin, end in split_top_level(spelling, angles=True):
        part = spelling[begin:end].split("=")[0]
        words = [part[token.start : token.end] for token in code(part) if token.kind is Kind.NAME]
        if words and (len(words) > 1 or words[0] not in TYPE_WORDS | {"typename", "class"}):
            names.append(words[-1])
    return tuple(names)


def template_defaults(spelling: str) -> dict[str, str]:
    """Default arguments of template parameters: `typename T, int N = 4` -> `{"N": "4"}`."""
    defaults = {}
    spelling = without_comments(spelling)
    for begin, end in split_top_level(spelling, angles=True):
        part = spelling[begin:end]
        head, equals, value = part.partition("=")
        names = template_names(head)
        if equals and names:
            defaults[names[0]] = value.strip()
    return defaults


def _return_type(before: list[str], after: list[str]) -> str:
    if "->" in after:
        return " ".join(after[after.index("->") + 1 :])
    words, depth = [], 0
    for word in before:
        if word in ("(", "["):
            depth += 1
        elif word in (")", "]"):
            depth -= 1
        elif depth == 0 and word not in _STORAGE and not word.startswith("__attribute"):
            words.append(word)
    return re.sub(r"\s*(::|<|>|\*|&)\s*", r"\1", " ".join(words))


def read_parameters(inner: str) -> tuple[Parameter, ...]:
    """The parameters in the text between a function's parentheses."""
    parameters = []
    for begin, end in split_top_level(inner, angles=True):
        parameter = read_parameter(inner[begin:end])
        if parameter is not None:
            parameters.append(parameter)
    return tuple(parameters)


@lru_cache(maxsize=4096)
def read_parameter(declaration: str) -> Parameter | None:
    """One parameter declaration; None for `void`, `...` and empty text."""
    declaration = without_comments(declaration)
    for begin, end in split_top_level(declaration, "=", angles=True)[:1]:
        declaration = declaration[begin:end].strip()
    declaration = re.sub(r"\[\[.*?\]\]|\b__attribute__\s*\(\(.*?\)\)|\balignas\s*\(.*?\)", " ", declaration).strip()
    tokens = code(declaration)
    piece = [declaration[token.start : token.end] for token in tokens]
    if not tokens or piece == ["void"] or piece == ["..."]:
        return None
    name_at = _name_index(tokens, piece)
    stars = arrays = references = 0
    angle = 0
    base: list[str] = []
    base_open = True
    for index, word in enumerate(piece):
        if word == "<" and index != name_at:
            angle += 1
        if angle == 0 and (word in ("*", "&", "&&", "(") or index == name_at):
            base_open = False
        stars += angle == 0 and word == "*"
        references += angle == 0 and word in ("&", "&&")
        arrays += angle == 0 and word == "["
        if base_open and word not in _RESTRICT:
            base.append(word)
        if word[0] == ">" and angle and set(word) <= {">"}:
            angle = max(angle - len(word), 0)
    const = "const" in base
    element = canonical_type(_join([word for word in base if word not in _QUALIFIERS]))
    if name_at is None:
        spelling = declaration
    else:
        spelling = declaration[: tokens[name_at].start].rstrip() + declaration[tokens[name_at].end :].strip()
    return Parameter(
        name=piece[name_at] if name_at is not None else "",
        spelling=" ".join(spelling.split()),
        element=element,
        pointer=stars + arrays > 0,
        const=const,
        indirections=stars + arrays + references,
    )


def _join(words: list[str]) -> str:
    return re.sub(r"\s*(::|<|>|,)\s*", lambda m: m[1] + (" " if m[1] == "," else ""), " ".join(words)).strip()


def _name_index(tokens: list[Token], piece: list[str]) -> int | None:
    """Which token is the declared name: the last word that is no part of the type."""
    inside = [i for i in range(1, len(piece) - 1) if piece[i - 1] in ("*", "&") and piece[i + 1] == ")"]
    for index in inside:
        if tokens[index].kind is Kind.NAME and "(" in piece[:index]:
            return index
    angle = round_ = 0
    last: int | None = None
    type_seen = False
    for index, word in enumerate(piece):
        if word == "<":
            angle += 1
        elif word[0] == ">" and angle:
            angle = max(angle - word.count(">"), 0)
        elif word in ("(", "["):
            if angle == 0 and word == "[":
                break
            round_ += 1
        elif word in (")", "]"):
            round_ -= 1
        elif angle == 0 and round_ == 0 and tokens[index].kind is Kind.NAME:
            if word in _QUALIFIERS | _RESTRICT:
                continue
            if word in TYPE_WORDS:
                type_seen, last = True, None
            elif piece[index - 1] == "::" and index:
                # The last part of a qualified type is no name, unless something follows.
                type_seen, last = True, None
            elif type_seen:
                last = index
            else:
                type_seen = True
    return last
