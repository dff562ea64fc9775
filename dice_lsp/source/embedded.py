"""CUDA in Python files: kernels that stand in string literals, as PyCUDA, CuPy and PyTorch's inline extensions take them.

`cuda_view` gives a text of the same length and the same lines in which only CUDA is left, so that everything else in this
package works on a Python file as on a `.cu` file, and every position holds in both. Each string is a translation unit of
its own: `VIEW_EDGE` stands where its quotes are, and `section` leaves one of them.

A string counts when it holds `__global__` and says what the compiler will read: no f-string, no `%` or `.format`, and no
escape but those of a backslash, a quote and a line's end.
"""

import re
from functools import lru_cache
from typing import Any

from attrs import evolve, frozen

from dice_lsp.records import Document

VIEW_EDGE = "\f"
"""White space in C++, and rare enough in a Python string: a string with one in it is left out."""
SUFFIXES = (".py", ".pyw")
KERNEL_WORD = "__global__"
_TEMPLATE = re.compile(r"%\(\w+\)|\{\{|\{%|\$\{|\$[A-Za-z_]")
"""Marks of a text that is completed later: printf-style names, Jinja, Mako, `string.Template`."""
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


def is_python(path: str) -> bool:
    """Whether CUDA is to be looked for in the strings of a file; a path or a URI."""
    return path.lower().endswith(SUFFIXES)


@lru_cache(maxsize=8)
def cuda_strings(text: str) -> tuple[CudaString, ...]:
    """The strings of a Python text that hold kernels, in order. Never raises: text that does not parse has fewer."""
    if KERNEL_WORD not in text:
        return ()
    data = text.encode("utf-8", "replace")
    word = KERNEL_WORD.encode()
    found: list[CudaString] = []
    waiting = [_parser().parse(data).root_node]
    while waiting:
        node = waiting.pop()
        if data.find(word, node.start_byte, node.end_byte) < 0:
            # This runs at every change of the text: what holds no kernel is not looked into.
            continue
        if node.type == "string":
            string = _read(node, data)
            if string is not None:
                found.append(string)
        else:
            waiting.extend(reversed(node.children))
    return tuple(found)


def _read(node: Any, data: bytes) -> CudaString | None:
    """A string literal as a translation unit, or None when it is not one as it stands."""
    opening, closing = node.children[0], node.children[-1]
    if opening.type != "string_start" or closing.type != "string_end" or _is_made_at_run_time(node):
        return None
    prefix = set(opening.text.decode().rstrip("'\"").lower())
    content = data[opening.end_byte : closing.start_byte].decode("utf-8", "replace")
    if KERNEL_WORD not in content or VIEW_EDGE in content or prefix - set("ru") or _TEMPLATE.search(content):
        return None
    raw = "r" in prefix
    pieces = (piece for child in node.children for piece in child.children)
    escapes = (piece.text.decode() for piece in pieces if piece.type == "escape_sequence")
    if not raw and any(escape not in _PLAIN_ESCAPES for escape in escapes):
        return None
    start = len(data[: opening.end_byte].decode("utf-8", "replace"))
    return CudaString(start, start + len(content), raw, closing.text.decode())


def _is_made_at_run_time(node: Any) -> bool:
    """Whether the string is a part of what the program puts together: the compiler reads another text then."""
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "attribute":
        # Any method but those that only take white space off, `format` above all.
        name = parent.child_by_field_name("attribute")
        return name is None or name.text not in (b"strip", b"lstrip", b"rstrip")
    return parent.type in ("concatenated_string", "interpolation", "binary_operator")


def cuda_view(text: str) -> str:
    """The text with only its CUDA strings left: same length, same lines, white space for all else."""
    parts, at = [], 0
    for string in cuda_strings(text):
        before = _NOT_A_LINE_END.sub(" ", text[at : string.start])
        content = text[string.start : string.end]
        # The compiler sees one backslash where a Python string has two.
        seen = content if string.raw else content.replace("\\\\", " \\").replace('\\"', ' "').replace("\\'", " '")
        parts.append(before[:-1] + VIEW_EDGE + seen)
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
    return evolve(document, text=section(document.text, offset))


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
    return text if string.raw else text.replace("\\", "\\\\")


def view_of_literal(written: str, string: CudaString) -> str:
    """What `cuda_view` shows of a literal's text."""
    return written if string.raw else written.replace("\\\\", " \\")
