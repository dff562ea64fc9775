"""The variables of a shared object, read from its symbol table (ELF, System V ABI chapter 4).

The host emulation keeps device variables in a section of their own, and tells by their names which of them a launch has
changed. A file of another format has no symbols here, which costs the names and nothing else.
"""

import re
import struct
from collections.abc import Iterator

from attrs import frozen

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
_SHT_SYMTAB, _STT_OBJECT = 2, 1


@frozen
class Variable:
    """A variable with its name as written in the text, without its namespaces."""

    name: str
    address: int
    """From the start of the shared object."""
    size_bytes: int


def variables_of(image: bytes, section: str) -> tuple[Variable, ...]:
    """The variables that lie in a section, by address."""
    try:
        return tuple(sorted(_variables(image, section), key=lambda variable: variable.address))
    except (struct.error, IndexError, ValueError):
        return ()


def _variables(image: bytes, wanted: str) -> Iterator[Variable]:
    ident, *_, sections_at, _, _, _, _, size, count, names = _HEADER.unpack_from(image)
    if ident[: len(_MAGIC)] != _MAGIC or size != _SECTION.size:
        return
    sections = [_SECTION.unpack_from(image, sections_at + i * size) for i in range(count)]
    named = [_text(image, sections[names][4] + section[0]) for section in sections]
    if wanted not in named:
        return
    number = named.index(wanted)
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        strings = sections[section[6]][4]
        for name, info, _, home, value, length in _SYMBOL.iter_unpack(image[section[4] : section[4] + section[5]]):
            if home == number and info & 15 == _STT_OBJECT and length:
                yield Variable(plain_name(_text(image, strings + name)), value, length)


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
