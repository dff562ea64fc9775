"""What device code (ELF) tells without being run: whether two builds are the same, and which variables it can write.

Two builds that are the same machine code run alike, so that there is nothing to race, and any difference that a race
found would be the stopwatch's own. The comparison is on the safe side: what the loader or the card could read must be
equal byte for byte (instructions, constant banks, initial values, shared memory, the kernels' attributes, relocations and
the symbols they go to), only what debuggers and people read may differ. In doubt the codes differ, and are raced.
"""

import struct
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from dice_lsp.records import Compiled
from dice_lsp.worker.elf import HEADER, MAGIC, SECTION, SHT_NOBITS, SHT_STRTAB, SHT_SYMTAB, SYMBOL, Variable, variables

_EM_CUDA = 190
_WRITABLE = (".nv.global", ".nv.global.init")
_LITERAL = "$str"
"""How the compiler names string literals, which lie among the variables."""
_CALL = struct.Struct("<II")
_CALLS = ".nv.callgraph"
_INSTRUCTION = struct.Struct("<QQ")
_WIDE_INSTRUCTIONS = 70
"""From this compute capability on every instruction has 128 bits; NVIDIA does not describe them, `nvdisasm -hex` does."""
_OPCODE = 0xFFF
_READS_SPECIAL = frozenset({0x805, 0x8CB, 0x919, 0x9C3})
"""CS2R, CS2UR, S2R and S2UR; the special register stands in bits 72 to 79."""
_CLOCKS = range(0x50, 0x54)
"""SR_CLOCKLO, SR_CLOCKHI, SR_GLOBALTIMERLO and SR_GLOBALTIMERHI."""
_NARROW = {0x23C: "HMMA", 0x23E: "F2FP", 0x304: "F2F"}
"""Products of 16 or 19 bits on tensor cores (TF32 too), and conversions of floats to 16 bits."""
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


def writable_variables(cubin: bytes) -> tuple[Variable, ...]:
    """The `__device__`, `__managed__` and static variables of device code; none for bytes that are not device code."""
    found = variables(cubin, _EM_CUDA)
    return tuple(v for v in found if v.section in _WRITABLE and not v.symbol.startswith(_LITERAL))


def reads_clock(compiled: Compiled) -> bool:
    """Some instruction reads the clock or the timer, however its name was written in the text."""
    return any(
        first & _OPCODE in _READS_SPECIAL and second >> 8 & 0xFF in _CLOCKS for first, second in _instructions(compiled)
    )


def narrow_instructions(compiled: Compiled) -> frozenset[str]:
    """Names of the instructions that compute in, or convert to, fewer bits than a float has."""
    return frozenset(_NARROW[opcode] for first, _ in _instructions(compiled) if (opcode := first & _OPCODE) in _NARROW)


def _instructions(compiled: Compiled) -> Iterator[tuple[int, int]]:
    """The instructions of a kernel and of what it calls, as their two halves; none for code that is not read here."""
    digits = compiled.arch.removeprefix("sm_").rstrip("af")
    if not digits.isdigit() or int(digits) < _WIDE_INSTRUCTIONS:
        return
    try:
        sections = _sections(compiled.cubin)
        texts = [
            _data(compiled.cubin, sections[name])
            for symbol in called(compiled)
            if (name := f".text.{symbol}") in sections
        ]
    except (_NotReadable, struct.error, IndexError, ValueError):
        return
    for text in texts:
        yield from _INSTRUCTION.iter_unpack(text[: len(text) // _INSTRUCTION.size * _INSTRUCTION.size])


def called(compiled: Compiled) -> frozenset[str]:
    """The symbols of the kernel and of every function that it may call, `vprintf` and `malloc` among them."""
    try:
        heads, sections = _heads(compiled.cubin), _sections(compiled.cubin)
        return _called(compiled.cubin, heads, sections.get(_CALLS), compiled.symbol)
    except (_NotReadable, struct.error, IndexError, ValueError):
        return frozenset({compiled.symbol})


def _sections(cubin: bytes) -> dict[str, tuple[int, ...]]:
    heads = _heads(cubin)
    names = _data(cubin, heads[HEADER.unpack_from(cubin)[-1]])
    return {_text(names, head[0]): head for head in heads}


def _called(cubin: bytes, heads: list[tuple[int, ...]], calls: tuple[int, ...] | None, kernel: str) -> frozenset[str]:
    """Follows the graph, which lists callers and callees by their symbols."""
    if calls is None:
        return frozenset({kernel})
    table = heads[calls[6]]
    strings = _data(cubin, heads[table[6]])
    symbols = [_text(strings, symbol[0]) for symbol in SYMBOL.iter_unpack(_data(cubin, table))]
    callees: dict[str, set[str]] = {}
    for caller, callee in _CALL.iter_unpack(_data(cubin, calls)):
        # Numbers that are no symbol's mark indirect calls and the graph's ends.
        if caller < len(symbols) and callee < len(symbols):
            callees.setdefault(symbols[caller], set()).add(symbols[callee])
    reached, waiting = {kernel}, [kernel]
    while waiting:
        new = callees.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return frozenset(reached)


def _heads(cubin: bytes) -> list[tuple[int, ...]]:
    """The section headers. Raises `_NotReadable` for anything but device code."""
    ident, _, machine, _, _, _, sections_at, _, _, _, _, size, count, _ = HEADER.unpack_from(cubin)
    if ident[: len(MAGIC)] != MAGIC or machine != _EM_CUDA or size != SECTION.size:
        raise _NotReadable
    return [SECTION.unpack_from(cubin, sections_at + i * size) for i in range(count)]


def _content(cubin: bytes, symbol: str) -> tuple[Any, ...]:
    """Everything in device code that could matter, with the kernel's own name taken out."""
    try:
        heads = _heads(cubin)
        ident, kind, _, _, _, _, _, flags, _, _, _, _, _, names = HEADER.unpack_from(cubin)
        sections = [_section(cubin, head, _data(cubin, heads[names]), symbol) for head in heads]
        if f".text.{_KERNEL}" not in {section.name for section in sections}:
            raise _NotReadable
        symbols = [
            (_neutral(_text(sections[section.link].data, name), symbol), *rest)
            for section in sections
            if section.kind == SHT_SYMTAB
            for name, *rest in SYMBOL.iter_unpack(section.data)
        ]
    except (struct.error, IndexError, ValueError) as error:
        raise _NotReadable from error
    kept = [
        section
        for section in sections
        if section.kind not in (SHT_SYMTAB, SHT_STRTAB)
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
    if kind == SHT_NOBITS:
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
