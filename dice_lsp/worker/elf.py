"""What stands in an object file: device code and the host emulation's shared objects are both ELF.

The format is that of the ELF specification (System V ABI, chapters 4 and 5); `readelf` shows it.
"""

import re
import struct
from collections.abc import Iterator

from attrs import frozen

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
SHT_SYMTAB, SHT_STRTAB, SHT_NOBITS = 2, 3, 8
_STT_OBJECT = 1


@frozen
class Variable:
    """A variable of an object file: what it holds outlives a launch."""

    symbol: str
    """As the code names it, mangled."""
    section: str
    address: int
    """From the start of a shared object; in device code from the start of the section."""
    size_bytes: int

    @property
    def name(self) -> str:
        """As the text names it, without its namespaces."""
        return plain_name(self.symbol)


def variables(image: bytes, machine: int | None = None) -> tuple[Variable, ...]:
    """Every variable in the symbol tables; none for a file of another format, or of another `machine` (its `e_machine`)."""
    try:
        return tuple(_variables(image, machine))
    except (struct.error, IndexError, ValueError):
        return ()


def _variables(image: bytes, wanted: int | None) -> Iterator[Variable]:
    ident, _, machine, _, _, _, sections_at, _, _, _, _, size, count, names = HEADER.unpack_from(image)
    if ident[: len(MAGIC)] != MAGIC or size != SECTION.size or wanted not in (None, machine):
        return
    sections = [SECTION.unpack_from(image, sections_at + i * size) for i in range(count)]
    named = [_text(image, sections[names][4] + section[0]) for section in sections]
    for section in sections:
        if section[1] != SHT_SYMTAB:
            continue
        strings = sections[section[6]][4]
        for name, info, _, home, address, length in SYMBOL.iter_unpack(image[section[4] : section[4] + section[5]]):
            if info & 15 == _STT_OBJECT and length:
                yield Variable(_text(image, strings + name), named[home] if home < count else "", address, length)


def contents(image: bytes, symbol: str) -> bytes | None:
    """What a variable holds at first; None where there is no such symbol."""
    try:
        return _contents(image, symbol)
    except (struct.error, IndexError, ValueError):
        return None


def _contents(image: bytes, symbol: str) -> bytes | None:
    ident, _, _, _, _, _, sections_at, _, _, _, _, size, count, _ = HEADER.unpack_from(image)
    if ident[: len(MAGIC)] != MAGIC or size != SECTION.size:
        return None
    sections = [SECTION.unpack_from(image, sections_at + i * size) for i in range(count)]
    for section in sections:
        if section[1] != SHT_SYMTAB:
            continue
        strings = sections[section[6]][4]
        for name, _, _, home, address, length in SYMBOL.iter_unpack(image[section[4] : section[4] + section[5]]):
            if not 0 < home < count or _text(image, strings + name) != symbol:
                continue
            if sections[home][1] == SHT_NOBITS:
                return bytes(length)
            # In device code an address counts from the section's start, whose own address is zero.
            begin = sections[home][4] + address - sections[home][3]
            return image[begin : begin + length] if begin + length <= len(image) else None
    return None


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode()


def plain_name(symbol: str) -> str:
    """The last name of a mangled one (Itanium C++ ABI, 5.1): `_ZN5cacheL4keptE` -> `kept`."""
    if not symbol.startswith("_Z"):
        return symbol
    last, at = symbol, 2
    while match := re.compile(r"\D*(\d+)").match(symbol, at):
        at = match.end() + int(match[1])
        last = symbol[match.end() : at]
    return last
