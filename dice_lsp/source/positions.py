"""Offsets and positions: the package counts code points, editors count lines and code units.

A line ends at LF, CRLF or CR and nowhere else (LSP 3.18, "Text Documents"): a form feed, NEL or U+2028 is an
ordinary character, unlike for `str.splitlines`.
"""

import codecs
import re
from bisect import bisect_right
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE_END = re.compile(r"\r\n|\n|\r")


class LineIndex:
    """The lines of one text. Building it is linear in the text, each question is linear in one line at most."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._ascii = text.isascii()

    @property
    def line_count(self) -> int:
        """Number of lines; a text that ends with a line end has an empty last line."""
        return len(self._starts)

    def line_start(self, line: int) -> int:
        """Offset of a zero-based line's first character; lines past the last give the end of the text."""
        return self._starts[max(line, 0)] if line < len(self._starts) else len(self.text)

    def line_end(self, line: int) -> int:
        """Offset just before a line's terminator."""
        if line + 1 >= len(self._starts):
            return len(self.text)
        start, end = self.line_start(line), self._starts[max(line, 0) + 1]
        while end > start and self.text[end - 1] in "\r\n":
            end -= 1
        return end

    def line_of(self, offset: int) -> int:
        """Zero-based line that holds `offset`; an offset inside a CRLF belongs to the line that it ends."""
        return bisect_right(self._starts, max(offset, 0)) - 1

    def position(self, offset: int, encoding: Encoding = "utf-16") -> tuple[int, int]:
        """`(line, character)` of an offset, the character in units of `encoding`; offsets outside are clamped."""
        offset = min(max(offset, 0), len(self.text))
        line = self.line_of(offset)
        start = self._starts[line]
        offset = min(offset, self.line_end(line))
        if self._ascii or encoding == "utf-32":
            return line, offset - start
        return line, sum(_units(character, encoding) for character in self.text[start:offset])

    def offset(self, line: int, character: int, encoding: Encoding = "utf-16") -> int:
        """The offset of a position. Past the end of a line it is the line's end; inside a character, its start."""
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[line], self.line_end(line)
        if self._ascii or encoding == "utf-32":
            return min(start + max(character, 0), end)
        left = character
        for offset in range(start, end):
            left -= _units(self.text[offset], encoding)
            if left < 0:
                return offset
        return end


def _units(character: str, encoding: Encoding) -> int:
    code = ord(character)
    if encoding == "utf-16":
        return 2 if code > 0xFFFF else 1
    if encoding == "utf-8":
        return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
    return 1


def encoding_of(data: bytes) -> str:
    """The codec of a source file: UTF-8, UTF-16 by its byte order mark, else Latin-1, which every byte string is."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            data.decode("utf-16")
            return "utf-16"
        except UnicodeDecodeError:
            pass
    try:
        data.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError:
        return "latin-1"


def decode_bytes(data: bytes) -> str:
    """The text of a source file, whatever its bytes are; line ends are kept as they are.

    Bytes that are not UTF-8 are read as Latin-1: no byte is lost and the text can always be encoded again.
    """
    return data.decode(encoding_of(data))


def encode_text(text: str, like: bytes) -> bytes:
    """The bytes of an edited text in the encoding of the file's present bytes `like`.

    A character that this encoding lacks makes the file UTF-8; a lone surrogate becomes a question mark.
    """
    codec = encoding_of(like)
    if codec == "utf-16":
        mark = codecs.BOM_UTF16_LE if like.startswith(codecs.BOM_UTF16_LE) else codecs.BOM_UTF16_BE
        return mark + text.encode("utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be", errors="replace")
    try:
        return text.encode(codec)
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="replace")
