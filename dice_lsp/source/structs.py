"""What is in a struct, as the text of its definition says it: the designators of all numbers and pointers in it.

Only plain structs are read: no bases, no virtual functions, no bit fields, no unions, no references. What a text says is
not taken on trust: the compiler is asked afterwards where each designator lies (`worker.layouts`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, frozen

from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.slice import mask
from dice_lsp.source.tokens import split_top_level

MOST_LEAVES = 256
_DEPTH = 8
_WORD = re.compile(r"[A-Za-z_]\w*")
_ATTRIBUTE = re.compile(
    r"\b(?:alignas|__align__|__builtin_align__|__attribute__|__declspec)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[.*?\]\]"
)
_QUALIFIERS = re.compile(r"\b(?:volatile|mutable|struct|class|enum|typename|__restrict__|__restrict|restrict)\b")
_NO_MEMBER = re.compile(
    r"\s*(?:using|typedef|static|friend|template|constexpr\s+static|static_assert|inline\s+static)\b"
)
_TYPE = re.compile(r"\s*(?:struct|class|enum|union)\b")
_LANE_TYPE = re.compile(r"(?:u?(?:char|short|int|long|longlong)|float|double)[234]")


@frozen
class Leaf:
    """A number or a pointer in a struct. `element` is the pointee's type for a pointer."""

    designator: str
    """`n`, `size[1]`, `in.stride`: what follows the struct's name and a dot."""
    element: str
    pointer: bool
    const: bool


@frozen
class _Definition:
    parameters: tuple[str, ...]
    """Of the template that it is, by name."""
    body: str


def leaves(texts: Sequence[str], name: str, constants: Mapping[str, int]) -> tuple[Leaf, ...] | None:
    """Everything in a struct, in order; None where its definition is not found once, or is of another kind.

    Args:
        texts: the document and its headers.
        name: the type as written: `Params`, `ours::Params`, `Params<float>`.
        constants: values of macros and constants, for the sizes of arrays.
    """
    reader = _Reader([mask(text) for text in texts], constants)
    try:
        found = tuple(reader.leaves(name, "", 0))
    except _NotPlain:
        return None
    return found if 0 < len(found) <= MOST_LEAVES else None


def lanes(name: str) -> tuple[Leaf, ...]:
    """The members of one of CUDA's vector types; none for another type."""
    label = name.rpartition("::")[2]
    if label == "dim3":
        return tuple(Leaf(axis, "unsigned int", False, False) for axis in "xyz")
    if not _LANE_TYPE.fullmatch(label):
        return ()
    return tuple(Leaf(axis, _scalar(label[:-1]), False, False) for axis in "xyzw"[: int(label[-1])])


class _NotPlain(Exception):
    """The type is no plain struct, or more than this reader understands."""


class _Reader:
    def __init__(self, codes: Sequence[str], constants: Mapping[str, int]) -> None:
        self.codes = [re.sub(r"^[ \t]*#(?:[^\\\n]|\\\r?\n|\\.)*", _blank, code, flags=re.MULTILINE) for code in codes]
        self.constants = constants

    def leaves(self, name: str, before: str, depth: int) -> Iterator[Leaf]:
        if depth > _DEPTH:
            raise _NotPlain
        base, _, rest = name.partition("<")
        definition = self.definition(base.rpartition("::")[2].strip())
        arguments = (
            [rest[a:b].strip() for a, b in split_top_level(rest.rpartition(">")[0], angles=True)] if rest else []
        )
        if len(arguments) > len(definition.parameters):
            raise _NotPlain
        given = dict(zip(definition.parameters, arguments, strict=False))
        for statement in _statements(definition.body):
            yield from self.members(_substituted(statement, given), before, depth)

    def definition(self, name: str) -> _Definition:
        """The one definition of a struct. Raises `_NotPlain` where there is none, or more than one."""
        found: list[_Definition] = []
        for code in self.codes:
            pattern = (
                rf"\b(?:struct|class|union)\s+((?:{_ATTRIBUTE.pattern}|\s)*){re.escape(name)}\b\s*([^;{{}}()=]*)\{{"
            )
            for match in re.finditer(pattern, code):
                if match.group().startswith(("class", "union")) or match.groups()[-1].strip() not in ("", "final"):
                    raise _NotPlain  # members may be private, or there are bases or a specialisation
                template = re.search(r"\btemplate\s*<([^<>;{}]*)>\s*$", code[: match.start()])
                found.append(_Definition(_parameters(template[1]) if template else (), _body(code, match.end())))
            for match in re.finditer(r"\btypedef\s+struct\b[^;{}()]*\{", code):
                body = _body(code, match.end())
                after = code[match.end() + len(body) + 1 :].partition(";")[0]
                if name in _WORD.findall(after) and not re.search(rf"\b{re.escape(name)}\b", match.group()):
                    found.append(_Definition((), body))
        if len(found) != 1:
            raise _NotPlain
        return found[0]

    def members(self, statement: str, before: str, depth: int) -> Iterator[Leaf]:
        text = _ATTRIBUTE.sub(" ", statement)
        text = re.sub(r"^\s*(?:public\s*:\s*)+", "", text)
        if not text.strip() or _NO_MEMBER.match(text):
            return
        if re.match(r"\s*(?:private|protected)\s*:|.*\bvirtual\b", text, re.DOTALL):
            raise _NotPlain
        if "{" in text and _TYPE.match(text):
            if text.rpartition("}")[2].strip():
                raise _NotPlain  # a type and a member of it at once
            if not _WORD.findall(text.partition("{")[0].partition(":")[0])[1:]:
                raise _NotPlain  # an unnamed union
            return  # a type of the struct's own, which `definition` finds by its name
        head = re.split(r"[={]", text, maxsplit=1)[0]
        if "(" in head or "operator" in _WORD.findall(head) or re.match(r"\s*~", head):
            if re.search(r"\(\s*\*", head):
                raise _NotPlain  # a pointer to a function
            return  # a function, or the constructor
        if _TYPE.match(text) and not re.match(r"\s*(?:struct|class|enum|union)\s+[\w:<>, ]+?[\s*&]+\w", head):
            return  # a declaration of a type alone
        yield from self.declared(text, before, depth)

    def declared(self, text: str, before: str, depth: int) -> Iterator[Leaf]:
        """The members that one declaration makes: `const float *a, *b[2]`."""
        parts = [text[a:b] for a, b in split_top_level(text, angles=True)]
        parts = [re.split(r"[={]", part, maxsplit=1)[0] for part in parts]
        if any(":" in part.replace("::", "") or "&" in part for part in parts):
            raise _NotPlain
        first = re.fullmatch(r"(.*?[\w>*\s])\s*\b(\w+)\s*((?:\[[^\[\]]*\]\s*)*)", parts[0].strip(), re.DOTALL)
        if first is None:
            raise _NotPlain
        kind, stars = first[1].replace("*", " "), first[1].count("*")
        const = re.search(r"\bconst\b", first[1].partition("*")[0]) is not None
        base = " ".join(re.sub(r"\bconst(?:expr)?\b", " ", _QUALIFIERS.sub(" ", kind)).split())
        declarators = [(stars, first[2], first[3])]
        for part in parts[1:]:
            other = re.fullmatch(r"\s*((?:\*\s*(?:const\b|__restrict__\b|\s)*)*)(\w+)\s*((?:\[[^\[\]]*\]\s*)*)", part)
            if other is None:
                raise _NotPlain
            declarators.append((other[1].count("*"), other[2], other[3]))
        for pointers, name, brackets in declarators:
            if pointers > 1:
                raise _NotPlain
            for index in _indices(self.sizes(brackets)):
                yield from self.leaf(base, bool(pointers), const, f"{before}{name}{index}", depth)

    def leaf(self, base: str, pointer: bool, const: bool, designator: str, depth: int) -> Iterator[Leaf]:
        base = self.resolved(base)
        if base.endswith("*"):
            if pointer:
                raise _NotPlain
            base, pointer = base[:-1].strip(), True
            const = const or base.startswith("const ")
        base = base.removeprefix("const ").strip()
        if pointer:
            yield Leaf(designator, base, True, const)
        elif axes := lanes(base):
            yield from (evolve(axis, designator=f"{designator}.{axis.designator}", const=const) for axis in axes)
        elif self.is_struct(base):
            yield from self.leaves(base, f"{designator}.", depth + 1)
        elif self.is_enum(base):
            yield Leaf(designator, "int", False, const)
        else:
            yield Leaf(designator, base, False, const)

    def sizes(self, brackets: str) -> list[int]:
        sizes = []
        for text in re.findall(r"\[([^\[\]]*)\]", brackets):
            try:
                sizes.append(evaluate(text, self.constants))
            except ExpressionError:
                raise _NotPlain from None
            if not 0 < sizes[-1] <= MOST_LEAVES:
                raise _NotPlain
        return sizes

    def resolved(self, name: str) -> str:
        """A type without the names that the text gives it by `using` and `typedef`."""
        for _ in range(_DEPTH):
            label = re.escape(name.rpartition("::")[2]) if re.fullmatch(r"[\w:]+", name) else None
            pattern = rf"\busing\s+{label}\s*=\s*([^;{{}}]+);|\btypedef\s+([^;{{}}()]+?)\s*\b{label}\s*;"
            found = {
                " ".join((m[1] or m[2]).split()) for code in self.codes for m in re.finditer(pattern, code) if label
            }
            if len(found) != 1:
                if found:
                    raise _NotPlain
                return name
            new = found.pop()
            if "&" in new or "(" in new or new.count("*") > 1:
                raise _NotPlain
            name = re.sub(r"\s*\*", "*", re.sub(r"\b(?:struct|class|enum|typename)\s+", "", new))
        raise _NotPlain

    def is_struct(self, name: str) -> bool:
        label = re.escape(name.partition("<")[0].rpartition("::")[2].strip())
        pattern = rf"\b(?:struct|class|union)\s+(?:{_ATTRIBUTE.pattern}|\s)*{label}\b[^;{{}}()=]*\{{|\}}\s*{label}\s*;"
        return any(re.search(pattern, code) for code in self.codes)

    def is_enum(self, name: str) -> bool:
        label = re.escape(name.rpartition("::")[2])
        pattern = rf"\benum\s+(?:class\s+|struct\s+)?{label}\b\s*\{{"
        return any(re.search(pattern, code) for code in self.codes)


def _blank(match: "re.Match[str]") -> str:
    return re.sub(r"[^\r\n]", " ", match.group())


def _scalar(base: str) -> str:
    """`uint` -> `unsigned int`, `longlong` -> `long long`: what a vector type's lanes are."""
    plain = {"longlong": "long long", "ulonglong": "unsigned long long"}
    if base in plain:
        return plain[base]
    return f"unsigned {base[1:]}" if base.startswith("u") else "signed char" if base == "char" else base


def _parameters(text: str) -> tuple[str, ...]:
    """Names of a template's parameters."""
    parts = (text[a:b].partition("=")[0] for a, b in split_top_level(text, angles=True))
    return tuple((_WORD.findall(part) or [""])[-1] for part in parts)


def _body(code: str, start: int) -> str:
    """What stands between a brace that ends at `start` and its partner."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return code[start : match.start()]
    raise _NotPlain


def _statements(body: str) -> Iterator[str]:
    """The members of a struct's body, each as written, functions with their bodies."""
    at = depth = 0
    for match in re.finditer(r"[;{}]", body):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
        if depth:
            continue
        statement = body[at : match.start()]
        if match.group() == "}" and not _ends(statement):
            continue  # the semicolon of a type or of an initializer is still to come
        yield statement + ("}" if match.group() == "}" else "")
        at = match.end()
    if body[at:].strip():
        raise _NotPlain


def _ends(statement: str) -> bool:
    """A closing brace ends this statement: it is a function's."""
    head = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)+", "", _ATTRIBUTE.sub(" ", statement).partition("{")[0])
    return "(" in head and not _TYPE.match(head) and "=" not in head.partition("(")[0]


def _substituted(text: str, given: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: given.get(match.group(), match.group()), text) if given else text


def _indices(sizes: Sequence[int]) -> Iterator[str]:
    """`[0][0]`, `[0][1]`, ...; one empty text for no sizes."""
    if not sizes:
        yield ""
        return
    for number in range(sizes[0]):
        for rest in _indices(sizes[1:]):
            yield f"[{number}]{rest}"
