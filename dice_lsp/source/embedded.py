"""CUDA in Python files: kernels that stand in string literals, as PyCUDA, CuPy and PyTorch's inline extensions take them.

`cuda_view` gives a text of the same length and the same lines in which only CUDA is left, so that everything else in this
package works on a Python file as on a `.cu` file, and every position holds in both. Each string is a translation unit of
its own: `VIEW_EDGE` stands where its quotes are, and `section` leaves one of them.

A string counts when it holds `__global__` and says what the compiler will read: no `%`, and no escape but those of a
backslash, a quote and a line's end. What a program fills in counts when the text says what it is and it is no longer than
its place: `{BLOCK}` of an f-string or of `.format(BLOCK=256)`, or a word that `.replace("BLOCK", "256")` replaces, where
`BLOCK` stands for one number or word in the whole file. Strings that are joined, by `+` or in a list of `cuda_sources`,
are one translation unit.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from attrs import evolve, frozen

from dice_lsp.records import Document
from dice_lsp.source.python_program import constants

VIEW_EDGE = "\f"
"""White space in C++, and rare enough in a Python string: a string with one in it is left out."""
SUFFIXES = (".py", ".pyw")
KERNEL_WORD = "__global__"
_TEMPLATE = re.compile(r"%\(\w+\)|\{\{|\{%|\$\{|\$[A-Za-z_]")
"""Marks of a text that is completed later: printf-style names, Jinja, Mako, `string.Template`."""
_ASSIGNED = re.compile(
    r"^[ \t]*(\w+)[ \t]*(?:[^\w\s=(]{0,2}=(?!=)|:[^=\n]*=(?!=))|^[ \t]*(?:global[ \t]+(?:\w+, *)*|for[ \t]+)(\w+)",
    re.MULTILINE,
)
"""Statements that give a name a value; one more than there are does no harm."""
_NOT_A_LINE_END = re.compile(r"[^\r\n]")
_PLAIN_ESCAPES = ("\\\\", "\\'", '\\"', "\\\n", "\\\r\n", "\\\r")


@lru_cache(maxsize=1)
def _parser() -> Any:
    # Loaded for Python files only: most sessions never see one.
    import tree_sitter
    import tree_sitter_python

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))


@frozen
class CudaString:
    """One string literal with CUDA in it. `start:end` is its content, without prefix and quotes."""

    start: int
    end: int
    raw: bool
    quote: str
    """What closes it: one quote or three."""
    seen: str = ""
    """What the compiler sees of the content, as long as it is."""
    braces: bool = False
    """A brace is written as two."""
    words: tuple[str, ...] = ()
    """What the program replaces: a text with one of them cannot be written into it."""


def is_python(path: str) -> bool:
    """Whether CUDA is to be looked for in the strings of a file; a path or a URI."""
    return path.lower().endswith(SUFFIXES)


@lru_cache(maxsize=8)
def cuda_strings(text: str) -> tuple[CudaString, ...]:
    """The strings of a Python text that hold kernels or are joined to one that does, in order.

    Never raises: text that does not parse has fewer.
    """
    return tuple(sorted({part for unit in translation_units(text) for part in unit}, key=lambda part: part.start))


@lru_cache(maxsize=8)
def translation_units(text: str) -> tuple[tuple[CudaString, ...], ...]:
    """The strings that the compiler gets as one text, for each text with a kernel; all in the order of the file."""
    if KERNEL_WORD not in text:
        return ()
    data = text.encode("utf-8", "replace")
    reader = _Reader(text, data)
    found: dict[tuple[CudaString, ...], None] = {}
    word = KERNEL_WORD.encode()
    waiting = [reader.root]
    while waiting:
        node = waiting.pop()
        if data.find(word, node.start_byte, node.end_byte) < 0:
            # This runs at every change of the text: what holds no kernel is not looked into.
            continue
        if node.type == "string":
            unit = reader.unit(node)
            if unit:
                found[unit] = None
        else:
            waiting.extend(reversed(node.children))
    return tuple(sorted(found, key=lambda unit: unit[-1].start))


class _Reader:
    """Reads string literals of one Python text, and how the program puts them together."""

    def __init__(self, text: str, data: bytes) -> None:
        self.text, self.data = text, data
        self.root = _parser().parse(data).root_node

    @cached_property
    def values(self) -> Mapping[str, str]:
        return constants(self.text)

    @cached_property
    def assigned(self) -> Mapping[str, Any]:
        """Names of the module that are set once, to what has a string literal in it -> that value."""
        found: dict[str, Any] = {}
        times = Counter(match[1] or match[2] for match in _ASSIGNED.finditer(self.text))
        for statement in self.root.children:
            start, end = statement.start_byte, statement.end_byte
            if self.data.find(b'"', start, end) < 0 and self.data.find(b"'", start, end) < 0:
                continue
            node = statement.children[0] if statement.type == "expression_statement" and statement.children else None
            if node is None or node.type != "assignment":
                continue
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is None or left.type != "identifier" or right is None:
                continue
            name = left.text.decode()
            if times[name] == 1:
                found[name] = right
        return found

    def chains(self, names: Sequence[bytes]) -> Sequence[Any]:
        """Where strings of these names are joined: the outermost `a + b`, and the lists of `cuda_sources`."""
        found: list[Any] = []
        waiting = [self.root] if names else []
        while waiting:
            node = waiting.pop()
            if all(self.data.find(name, node.start_byte, node.end_byte) < 0 for name in names):
                # As for kernels: this runs at every change of the text.
                continue
            if node.type == "binary_operator" and any(child.type == "+" for child in node.children):
                found.append(node)
            elif node.type == "keyword_argument" and node.children[0].text == b"cuda_sources":
                found += [child for child in node.children if child.type in ("list", "tuple")]
                waiting.extend(child for child in node.children if child.type not in ("list", "tuple"))
            elif node.type != "string":
                waiting.extend(node.children)
        return found

    def unit(self, node: Any) -> tuple[CudaString, ...]:
        """All strings of the text that this one is a part of; empty where that is not certain."""
        whole = _with_methods(node)
        while whole.parent is not None and whole.parent.type in (
            "binary_operator", "parenthesized_expression", "concatenated_string"
        ):  # fmt: skip
            whole = whole.parent
        own = self.parts(whole)
        if own is None:
            return ()
        names = [name.encode() for name, value in self.assigned.items() if value == whole or value == node]
        joined: set[tuple[CudaString, ...]] = set()
        for chain in self.chains(names):
            if chain == whole or not self.names_in(chain) & set(names):
                continue
            parts = self.parts(chain)
            if parts is None:
                return ()
            joined.add(parts)
        return own if not joined else joined.pop() if len(joined) == 1 else own

    def names_in(self, chain: Any) -> set[bytes]:
        return {item.text for item in _items(chain) if item.type == "identifier"}

    def parts(self, node: Any) -> tuple[CudaString, ...] | None:
        """The strings that an expression joins; None when one of them is not known, or they do not join plainly."""
        found: list[CudaString] = []
        listed = node.type in ("list", "tuple")
        for item in _items(node):
            if item.type == "identifier":
                value = self.assigned.get(item.text.decode())
                more = None if value is None or value.type in ("identifier", "list", "tuple") else self.parts(value)
                if more is None:
                    return None
                found += more
            else:
                string = self.read(item)
                if string is None:
                    return None
                found.append(string)
        if len(found) > 1 and any(string.seen.count("{") != string.seen.count("}") for string in found):
            # A kernel that begins in one string and ends in another has no text of its own that could be written anew.
            return None
        for first, second in pairwise(found):
            # What the view shows between two strings is white space with a line's end or without; the compiler must
            # not be able to tell the difference.
            whole_line = first.seen.endswith("\n") or second.seen.startswith("\n") or listed
            last = first.seen.rsplit("\n", 1)[-1]
            apart = whole_line or first.seen[-1:].isspace() or second.seen[:1].isspace()
            plain = whole_line or not ("//" in last or last.lstrip().startswith("#"))
            same_line = "\n" not in self.text[first.end : second.start]
            if first.end >= second.start or not apart or not plain or (same_line and whole_line):
                return None
        return tuple(found)

    def read(self, whole: Any) -> CudaString | None:
        """A string literal, with the methods that the program calls on it, as a translation unit or a part of one."""
        node, methods = _without_methods(whole)
        if node.type != "string":
            return None
        opening, closing = node.children[0], node.children[-1]
        if opening.type != "string_start" or closing.type != "string_end":
            return None
        prefix = set(opening.text.decode().rstrip("'\"").lower())
        content = self.data[opening.end_byte : closing.start_byte].decode("utf-8", "replace")
        formatted = "f" in prefix or any(name == "format" for name, _ in methods)
        if VIEW_EDGE in content or prefix - set("ruf") or ("f" in prefix and any(n == "format" for n, _ in methods)):
            return None
        if _TEMPLATE.search(content) and not formatted:
            return None
        raw = "r" in prefix
        pieces = (piece for child in node.children for piece in child.children)
        escapes = (piece.text.decode() for piece in pieces if piece.type == "escape_sequence")
        if not raw and any(escape not in _PLAIN_ESCAPES for escape in escapes):
            return None
        seen: str | None = content if raw else _unescaped(content)
        values = self.values if "f" in prefix else {}
        words: list[str] = []
        for name, arguments in methods:
            if name == "format":
                given = self._keywords(arguments)
                values = given if given is not None else {}
            elif name == "replace":
                pair = self._two_words(arguments)
                if pair is None:
                    return None
                words.append(pair[0])
            elif name not in ("strip", "lstrip", "rstrip"):
                return None
        if formatted:
            seen = _filled_in(seen or "", values)
        for name, arguments in methods:
            if name == "replace" and seen is not None:
                pair = self._two_words(arguments)
                assert pair is not None
                seen = _replaced(seen, *pair)
        if seen is None:
            return None
        start = len(self.data[: opening.end_byte].decode("utf-8", "replace"))
        return CudaString(
            start, start + len(content), raw, closing.text.decode(), seen, braces=formatted, words=tuple(words)
        )

    def _keywords(self, arguments: Any) -> Mapping[str, str] | None:
        """`N=3, T="float"` of a call -> its texts; None for anything else."""
        found: dict[str, str] = {}
        for argument in arguments.named_children:
            if argument.type != "keyword_argument":
                return None
            value = self._word(argument.named_children[1])
            if value is None:
                return None
            found[argument.named_children[0].text.decode()] = value
        return found

    def _two_words(self, arguments: Any) -> tuple[str, str] | None:
        given = [self._word(argument) for argument in arguments.named_children]
        if len(given) != 2 or not given[0] or given[1] is None:
            return None
        return given[0], given[1]

    def _word(self, node: Any) -> str | None:
        """What a number, a short string, a constant's name, or `str(...)` of one writes."""
        text: str = node.text.decode("utf-8", "replace")
        if node.type in ("integer", "float"):
            return text if re.fullmatch(r"\d+|\d+\.\d+", text) else None
        if node.type == "identifier":
            return self.values.get(text)
        if node.type == "call" and text.startswith("str("):
            inner = node.child_by_field_name("arguments").named_children
            return self._word(inner[0]) if len(inner) == 1 else None
        if node.type == "string" and re.fullmatch(r"(['\"])[^\\'\"\n]*\1", text):
            return text[1:-1]
        return None


def _items(node: Any) -> Iterator[Any]:
    """The parts that a `+`, adjacent literals, a list or parentheses join, in order."""
    match node.type:
        case "binary_operator" if any(child.type == "+" for child in node.children):
            children = [node.child_by_field_name("left"), node.child_by_field_name("right")]
        case "concatenated_string" | "list" | "tuple" | "parenthesized_expression":
            children = node.named_children
        case _:
            yield node
            return
    for child in children:
        yield from _items(child)


def _with_methods(node: Any) -> Any:
    """A literal with the calls of its methods: `\"\"\"...\"\"\".format(N=3).strip()`."""
    while (
        node.parent is not None
        and node.parent.type == "attribute"
        and node.parent.parent is not None
        and node.parent.parent.type == "call"
    ):
        node = node.parent.parent
    return node


def _without_methods(node: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """The literal, and the methods that are called on it with their arguments, innermost first."""
    methods: list[tuple[str, Any]] = []
    while node.type == "call":
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or function.type != "attribute" or arguments is None:
            break
        methods.insert(0, (function.child_by_field_name("attribute").text.decode(), arguments))
        node = function.child_by_field_name("object")
    return node, methods


def _unescaped(content: str) -> str:
    # The compiler sees one backslash where a Python string has two.
    return content.replace("\\\\", " \\").replace('\\"', ' "').replace("\\'", " '")


def _filled_in(content: str, values: Mapping[str, str]) -> str | None:
    """A format string with its values in the places of their names; None when one is not known or does not fit."""
    out, at = [], 0
    for match in re.finditer(r"\{\{|\}\}|\{(\w+)\}|[{}]", content):
        out.append(content[at : match.start()])
        if match[0] in ("{{", "}}"):
            out.append(" " + match[0][0])
        else:
            value = values.get(match[1] or "")
            fitted = None if value is None else _fitted(value, content, match.start(), match.end())
            if fitted is None:
                return None
            out.append(fitted)
        at = match.end()
    return "".join([*out, content[at:]])


def _replaced(content: str, old: str, new: str) -> str | None:
    """Every `old` replaced by `new`, the length kept; None when that is not possible."""
    out, at = [], 0
    while (found := content.find(old, at)) >= 0:
        fitted = _fitted(new, content, found, found + len(old))
        if fitted is None:
            return None
        out.append(content[at:found] + fitted)
        at = found + len(old)
    return "".join([*out, content[at:]])


def _fitted(value: str, content: str, start: int, end: int) -> str | None:
    """A value with as much white space as its place has room; None where it is too long, or would tear a word apart."""
    room = end - start - len(value)
    if room < 0 or "\n" in value:
        return None
    joins_before = bool(re.match(r"\w", content[start - 1 : start])) if start else False
    joins_after = bool(re.match(r"\w", content[end : end + 1]))
    if not room or not joins_after:
        return value + " " * room
    return None if joins_before else " " * room + value


def cuda_view(text: str) -> str:
    """The text with only its CUDA strings left: same length, same lines, white space for all else."""
    parts, at = [], 0
    for string in cuda_strings(text):
        before = _NOT_A_LINE_END.sub(" ", text[at : string.start])
        parts.append(before[:-1] + VIEW_EDGE + string.seen)
        rest = text[string.end : string.end + 1]
        parts.append(VIEW_EDGE if rest else "")
        at = string.end + len(rest)
    parts.append(_NOT_A_LINE_END.sub(" ", text[at:]))
    return "".join(parts)


def document_of(uri: str, version: int, text: str) -> Document:
    """A document as this package reads it: a Python file through its view, any other as it is."""
    return Document(uri, version, cuda_view(text), text) if is_python(uri) else Document(uri, version, text)


def unit(document: Document, offset: int) -> Document:
    """The document with only the translation unit of what stands at `offset`; all of it where it is no view."""
    if document.file_text is None:
        return document
    units = [unit for unit in translation_units(document.file_text) if any(p.start <= offset <= p.end for p in unit)]
    if not units or len(units[0]) == 1:
        return evolve(document, text=section(document.text, offset))
    parts, at = [], 0
    for part in units[0]:
        parts += [_NOT_A_LINE_END.sub(" ", document.text[at : part.start]), document.text[part.start : part.end]]
        at = part.end
    return evolve(document, text="".join([*parts, _NOT_A_LINE_END.sub(" ", document.text[at:])]))


@frozen
class Written:
    """One piece of CUDA text as it must stand in the file, and as the document's text shows it then. Equally long."""

    in_file: str
    in_view: str


def written(document: Document, offset: int, text: str) -> Written | None:
    """CUDA text for the place `offset`; None when the string that holds the place cannot hold the text."""
    if document.file_text is None:
        return Written(text, text)
    holder = next((s for s in cuda_strings(document.file_text) if s.start <= offset <= s.end), None)
    as_literal = None if holder is None else literal(text, holder)
    if holder is None or as_literal is None:
        return None
    return Written(as_literal, view_of_literal(as_literal, holder))


def replaced(document: Document, start: int, end: int, text: str) -> str | None:
    """The file's text with `text` in the place of `start:end`; None when the string there cannot hold it."""
    if document.file_text is None:
        return document.text[:start] + text + document.text[end:]
    both = written(document, start, text)
    return None if both is None else document.file_text[:start] + both.in_file + document.file_text[end:]


def section(view: str, offset: int) -> str:
    """A view with only the string that holds `offset` left: the translation unit of what stands there."""
    start = view.rfind(VIEW_EDGE, 0, offset) + 1
    end = view.find(VIEW_EDGE, offset)
    end = len(view) if end < 0 else end
    return _NOT_A_LINE_END.sub(" ", view[:start]) + view[start:end] + _NOT_A_LINE_END.sub(" ", view[end:])


def literal(text: str, string: CudaString) -> str | None:
    """CUDA text as it must be written into a string of the file; None when it cannot be."""
    if VIEW_EDGE in text or string.quote in text or (len(string.quote) == 1 and "\n" in text):
        return None
    if any(word in text for word in string.words):
        return None
    text = text.replace("{", "{{").replace("}", "}}") if string.braces else text
    return text if string.raw else text.replace("\\", "\\\\")


def view_of_literal(written: str, string: CudaString) -> str:
    """What `cuda_view` shows of a literal's text."""
    seen = written if string.raw else written.replace("\\\\", " \\")
    return seen.replace("{{", " {").replace("}}", " }") if string.braces else seen
