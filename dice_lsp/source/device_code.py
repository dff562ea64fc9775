"""What a function's body stands on: the macros, functions and type names of its text and of the headers around it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from attrs import frozen

from dice_lsp.records import Parameter
from dice_lsp.source.conditionals import CONDITION, Conditionals, with_defined
from dice_lsp.source.expressions import SIZEOF, ExpressionError, canonical_type, evaluate
from dice_lsp.source.kernels import Function, SourceModel, parse
from dice_lsp.source.macros import Macro, Room, expand, read_macro
from dice_lsp.source.project import ProjectTexts
from dice_lsp.source.tokens import Kind, closing, lex, split_top_level, without_comments

_MAX_EXPANSIONS = 400
_MAX_EXPANDED = 200_000
"""Longest text that macros may make of a body, in code points."""
_MAX_PARTS = 200
"""Most macros, functions and types of one context."""
_TYPE_NAME = re.compile(
    r"typedef\s+(?P<old>[^()\[\]{};]+?)\s*\b(?P<new>\w+)$|using\s+(?P<name>\w+)\s*=\s*(?P<type>.+)$", re.DOTALL
)
_STRUCT = re.compile(
    r"template\s*<\s*(?:class|typename)\s+(?P<parameter>\w+)\s*>\s*(?:struct|class)\s+"
    r"(?:(?:alignas|__align__)\s*\(\s*(?P<aligned>\d+)\s*\)\s*)?(?P<name>\w+)\s*\{"
)
_STRUCT_NAME = re.compile(
    r"\b(?:struct|class)\s+(?:__align__\s*\([^()]*\)\s*)?(\w+)\s*(?:<[^<>{};]*>\s*)?(?::[^{};]*)?\{"
)
_DYNAMIC = re.compile(r"\bextern\s+__shared__|__shared__\s+extern\b")
_MEMBER = re.compile(
    r"static\s+(?:constexpr|const)\s+(?:const(?:expr)?\s+)?[\w:]+(?:\s+\w+)*?\s+(\w+)\s*=\s*([^;{}]+);"
)
_INSTANCE = re.compile(r"(?:\w+::)*(\w+)\s*<\s*([^<>,]+?)\s*>$")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"\s*\(")


@frozen
class Callee:
    """A function that a body may call."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...]
    body: str


@frozen
class Context:
    """What the names of one body mean; only those that it uses, directly or through others."""

    macros: tuple[Macro, ...] = ()
    callees: tuple[Callee, ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    """Type name -> what it stands for, as written."""
    members: tuple[tuple[str, int], ...] = ()
    """`vec::size` -> its value."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Size in bytes of the structs among the types."""
    hides_shared: bool = False
    """Something that is used declares dynamic shared memory where no body shows it, as in `SharedMemory<float>()`."""


EMPTY = Context()
_NO_DEFINES: Mapping[str, str] = MappingProxyType({})


@frozen(eq=False)
class _Tables:
    macros: Mapping[str, Macro]
    functions: Mapping[str, tuple[Callee, ...]]
    types: Mapping[str, str]
    structs: Mapping[str, tuple[str, int | None, Mapping[str, str]]]
    """Struct template of one type -> its parameter, its alignment in bytes, its integer constants as written."""
    sharing: frozenset[str]
    """Structs and function-like macros with dynamic shared memory inside."""


@lru_cache(maxsize=64)
def _tables(model: SourceModel, defines: tuple[tuple[str, str], ...]) -> _Tables:
    macros: dict[str, Macro | None] = {}
    for span in model.skeleton.directives:
        macro = read_macro(model.text[span.start : span.end])
        if macro is None or macro.parameters is None:
            continue
        # Which of two definitions counts, nobody knows.
        usable = (
            "#" not in re.sub(r'"[^"]*"', "", macro.body)
            # What stands for all that is left, `...`, is not followed.
            and all(_WORD.fullmatch(name) for name in macro.parameters)
            and macros.get(macro.name, macro) == macro
        )
        macros[macro.name] = macro if usable else None
    functions: dict[str, tuple[Callee, ...]] = {}
    for function in model.functions:
        callee = _callee(model, function)
        if callee is not None:
            functions[function.name] = (*functions.get(function.name, ()), callee)
    types: dict[str, str | None] = {}
    dead = _dead(model, dict(defines))
    for declaration in model.skeleton.declarations:
        if declaration.end - declaration.start > 400 or any(a <= declaration.start < b for a, b in dead):
            continue
        line = model.text[declaration.start : declaration.end]
        if not line.startswith(("typedef", "using", "template")):
            continue
        if (named := _TYPE_NAME.match(without_comments(line))) is not None:
            name, old = named["new"] or named["name"], (named["old"] or named["type"]).strip()
            types[name] = old if types.get(name, old) == old else None
    return _Tables(
        {name: macro for name, macro in macros.items() if macro is not None},
        functions,
        {name: old for name, old in types.items() if old is not None},
        _structs(model.text) if "static" in model.text else {},
        _sharing(model.text),
    )


def _sharing(text: str) -> frozenset[str]:
    found = set()
    for match in _DYNAMIC.finditer(text):
        before = list(_STRUCT_NAME.finditer(text, 0, match.start()))
        if before and (closing(text, before[-1].end() - 1) or len(text)) > match.start():
            found.add(before[-1][1])
    return frozenset(found)


_DEFINITION = re.compile(r"#\s*(define|undef)\b\s*(.*)", re.DOTALL)


def _dead(model: SourceModel, defined: dict[str, str]) -> list[tuple[int, int]]:
    """The parts of a text that `#if` leaves out when nothing else is defined but what the text itself defines."""
    conditionals = Conditionals()
    parts: list[tuple[int, int]] = []
    begin = -1
    for span in model.skeleton.directives:
        if (match := _DEFINITION.match(model.text, span.start, span.end)) is not None:
            rest = _line(match[2])
            name = re.match(r"\w+", rest)
            if conditionals.is_read and name is not None:
                defined.pop(name[0], None)
                if match[1] == "define":
                    defined[name[0]] = rest[name.end() :].strip()
        elif (match := CONDITION.match(model.text, span.start, span.end)) is not None:
            conditionals.step(match[1], _line(match[2]), defined, lambda condition: _holds(condition, defined))
            if not conditionals.is_read and begin < 0:
                begin = span.end
            elif conditionals.is_read and begin >= 0:
                parts.append((begin, span.start))
                begin = -1
    return parts


def _line(rest: str) -> str:
    return without_comments(rest).replace("\\", " ").strip()


def _holds(condition: str, defined: Mapping[str, str]) -> bool:
    text = with_defined(condition, defined)
    names = {word: 0 for word in _WORD.findall(text)}
    for word in names:
        try:
            names[word] = evaluate(defined.get(word, "0") or "0")
        except ExpressionError:
            continue
    try:
        return evaluate(text, names) != 0
    except ExpressionError:
        return False


def _callee(model: SourceModel, function: Function) -> Callee | None:
    if function.body_end - function.body_start > 20_000:
        return None
    return Callee(
        function.name, function.parameters, function.template, model.text[function.body_start : function.body_end]
    )


def _structs(text: str) -> dict[str, tuple[str, int | None, Mapping[str, str]]]:
    found: dict[str, tuple[str, int | None, Mapping[str, str]]] = {}
    for match in _STRUCT.finditer(text):
        end = closing(text, match.end() - 1)
        if end is None:
            continue
        members = {member[1]: member[2].strip() for member in _MEMBER.finditer(text[match.end() : end])}
        found[match["name"]] = match["parameter"], int(match["aligned"]) if match["aligned"] else None, members
    return found


def context_for(body: str, models: Sequence[SourceModel], defines: Mapping[str, str] = _NO_DEFINES) -> Context:
    """The macros, functions and types that a body's names lead to; of two texts that define a name, the first counts.

    `defines` are the macros that the build defines.
    """
    tables = [_tables(model, tuple(sorted(defines.items()))) for model in models]
    macros: dict[str, Macro] = {}
    callees: dict[str, tuple[Callee, ...]] = {}
    types: dict[str, str] = {}
    waiting = [body]
    seen: set[str] = set()
    while waiting and len(macros) + len(callees) + len(types) < _MAX_PARTS:
        for word in dict.fromkeys(_WORD.findall(waiting.pop())):
            if word in seen:
                continue
            seen.add(word)
            for table in tables:
                if (macro := table.macros.get(word)) is not None:
                    macros[word] = macro
                    waiting.append(macro.body)
                elif word in table.functions:
                    callees[word] = table.functions[word]
                    waiting += [c.body + " " + " ".join(p.spelling for p in c.parameters) for c in callees[word]]
                elif word in table.types:
                    types[word] = table.types[word]
                    waiting.append(types[word])
                else:
                    continue
                break
    members: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for name, old in [*types.items(), *((word, word) for word in _instances(body, tables))]:
        for table in tables:
            instance = _INSTANCE.match(old)
            if instance is not None and instance[1] in table.structs:
                parameter, aligned, constants = table.structs[instance[1]]
                if aligned is not None:
                    sizes[name] = aligned
                width = size_of(instance[2], types)
                for member, text in constants.items():
                    if width is not None:
                        text = re.sub(rf"sizeof\s*\(\s*{parameter}\s*\)", str(width), text)
                    try:
                        members[f"{name}::{member}"] = evaluate(text)
                    except ExpressionError:
                        continue
    return Context(
        tuple(macros.values()),
        tuple(callee for group in callees.values() for callee in group),
        tuple(types.items()),
        tuple(members.items()),
        tuple(sizes.items()),
        any(seen & table.sharing for table in tables),
    )


def _instances(body: str, tables: Iterable[_Tables]) -> list[str]:
    names = {name for table in tables for name in table.structs}
    return [m[0] for m in re.finditer(r"\b(\w+)<\w+(?: \w+)*>", body) if m[1] in names] if names else []


MAX_AROUND = 40
"""Most headers that are read for the bodies of one text."""
MAX_HEADER = 300_000
"""Characters of a header; a longer one is made by a tool."""


@lru_cache(maxsize=64)
def _model_of(text: str) -> SourceModel:
    return parse(text)


def models_around(model: SourceModel, path: str, project: ProjectTexts | None) -> tuple[SourceModel, ...]:
    """The project's headers that a text includes, directly or through others, the nearest first."""
    return tuple(files_around(model, path, project).values())


def files_around(
    model: SourceModel, path: str, project: ProjectTexts | None, siblings: Callable[[str], bool] | None = None
) -> dict[str, SourceModel]:
    """The same by their paths, and then the other files of the folder whose texts `siblings` wants."""
    if project is None:
        return {}
    found: dict[str, SourceModel] = {}
    waiting = [(path, model)]
    while waiting:
        place, current = waiting.pop(0)
        for include in current.includes:
            header = project.resolve(place, include.text, include.quoted)
            if header is None or header in found or header == path or len(found) >= MAX_AROUND:
                continue
            text = project.text(header)
            if text is not None and len(text) <= MAX_HEADER:
                found[header] = _model_of(text)
                waiting.append((header, found[header]))
    for sibling in project.siblings(path) if siblings is not None else ():
        text = project.text(sibling) if sibling not in found and len(found) < MAX_AROUND else None
        if text is not None and len(text) <= MAX_HEADER and siblings is not None and siblings(text):
            found[sibling] = _model_of(text)
    return found


def resolved_type(name: str, types: Mapping[str, str]) -> str:
    """The canonical type behind a name, through type names of the text."""
    for _ in range(8):
        name = canonical_type(name)
        if name in SIZEOF or name not in types:
            break
        name = types[name]
    return name


def size_of(name: str, types: Mapping[str, str]) -> int | None:
    """Size in bytes of a type, if it is known."""
    return SIZEOF.get(resolved_type(name, types))


@lru_cache(maxsize=512)
def expanded(text: str, macros: tuple[Macro, ...]) -> str:
    """The text with every call of the macros written out; as it is where that has no end."""
    known = {macro.name: macro for macro in macros}
    if not known or not any(name in text for name in known):
        return text
    pieces: list[str] = []
    room = Room(calls=_MAX_EXPANSIONS)
    at = length = 0
    for token in lex(text):
        if token.kind is not Kind.NAME or token.start < at:
            continue
        macro = known.get(text[token.start : token.end])
        gap = _CALL.match(text, token.end)
        end = closing(text, gap.end() - 1) if macro is not None and gap is not None else None
        if macro is None or gap is None or end is None:
            continue
        if len(split_top_level(text[gap.end() : end])) != len(macro.parameters or ()):
            continue
        pieces += [text[at : token.start], expand(text[token.start : end + 1], known, room)]
        length += len(pieces[-1])
        at = end + 1
        if length > _MAX_EXPANDED:
            return text
    return "".join([*pieces, text[at:]])
