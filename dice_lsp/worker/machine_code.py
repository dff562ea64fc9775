"""Whether two builds are the same machine code, read from their device code (ELF).

Two such kernels run alike, so that there is nothing to race, and any difference that a race found would be the
stopwatch's own. The comparison is on the safe side: what the loader or the card could read must be equal byte for
byte (instructions, constant banks, initial values, shared memory, the kernels' attributes, relocations and the symbols
they go to), only what debuggers and people read may differ. In doubt the codes differ, and are raced.

The format is that of the ELF specification (System V ABI, chapters 4 and 5); `readelf` shows it.
"""

import struct
from typing import Any

from attrs import frozen

from dice_lsp.records import Compiled

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
_EM_CUDA = 190
_SHT_SYMTAB, _SHT_STRTAB, _SHT_NOBITS = 2, 3, 8
_DEBUG = (".debug_", ".nv_debug_", ".rel.debug_", ".rela.debug_", ".rel.nv_debug_", ".rela.nv_debug_")
_TOOL_NOTE = ".note.nv.tkinfo"
"""Which assembler made the code, with which options: `-lineinfo` stands here."""


class _NotReadable(Exception):
    """The bytes are not device code as this file knows it."""


@frozen
class _Section:
    name: str
    kind: int
    flags: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int
    data: bytes


def same_machine_code(a: Compiled, b: Compiled) -> bool:
    """Whether the kernels of two builds are the same to the card, whatever they are called in their texts."""
    figures = ("arch", "registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "smem_bytes")
    if any(getattr(a, figure) != getattr(b, figure) for figure in figures):
        return False
    try:
        return _content(a.cubin, a.symbol) == _content(b.cubin, b.symbol)
    except _NotReadable:
        return False


def _content(cubin: bytes, symbol: str) -> tuple[Any, ...]:
    """Everything in device code that could matter, with the kernel's own name taken out."""
    try:
        ident, kind, machine, _, _, _, sections_at, flags, _, _, _, size, count, names = _HEADER.unpack_from(cubin)
        if ident[: len(_MAGIC)] != _MAGIC or machine != _EM_CUDA or size != _SECTION.size:
            raise _NotReadable
        heads = [_SECTION.unpack_from(cubin, sections_at + i * size) for i in range(count)]
        sections = [_section(cubin, head, _data(cubin, heads[names]), symbol) for head in heads]
        if f".text.{_KERNEL}" not in {section.name for section in sections}:
            raise _NotReadable
        symbols = [
            (_neutral(_text(sections[section.link].data, name), symbol), *rest)
            for section in sections
            if section.kind == _SHT_SYMTAB
            for name, *rest in _SYMBOL.iter_unpack(section.data)
        ]
    except (struct.error, IndexError, ValueError) as error:
        raise _NotReadable from error
    kept = [
        section
        for section in sections
        if section.kind not in (_SHT_SYMTAB, _SHT_STRTAB)
        and section.name != _TOOL_NOTE
        and not section.name.startswith(_DEBUG)
    ]
    return ident, kind, flags, kept, symbols


def _section(cubin: bytes, head: tuple[int, ...], names: bytes, symbol: str) -> _Section:
    name, kind, flags, _, _, size, link, info, alignment, entry_size = head
    return _Section(
        _neutral(_text(names, name), symbol), kind, flags, size, link, info, alignment, entry_size, _data(cubin, head)
    )


def _data(cubin: bytes, head: tuple[int, ...]) -> bytes:
    kind, offset, size = head[1], head[4], head[5]
    if kind == _SHT_NOBITS:
        return b""
    if offset + size > len(cubin):
        raise _NotReadable
    return cubin[offset : offset + size]


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


_KERNEL = "*"
"""Stands for the kernel's name, which says nothing about its code; no symbol is called so."""


def _neutral(name: str, symbol: str) -> str:
    if name == symbol:
        return _KERNEL
    return f"{name.removesuffix(symbol)}{_KERNEL}" if name.endswith(f".{symbol}") else name
