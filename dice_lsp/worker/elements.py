"""The element types a kernel's buffers and scalars may have, and how their bytes are read as numbers.

Arrays travel in their storage type: bfloat16 as `uint16`, because numpy has no such type, and `float4` as four floats.
"""

import re
from enum import StrEnum
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

Array = NDArray[Any]


class Kind(StrEnum):
    """How the values of an element are compared: with a tolerance, or exactly."""

    FLOAT = "float"
    INT = "int"
    BOOL = "bool"


@frozen(eq=False)
class Element:
    """One element as the kernel sees it: `lanes` numbers of `storage`, `itemsize` bytes in all."""

    spelling: str
    kind: Kind
    storage: np.dtype[Any]
    lanes: int
    itemsize: int
    epsilon: float
    """Distance from 1.0 to the next number; 0 for integers."""
    bfloat16: bool = False

    def decode(self, stored: Array) -> Array:
        """Stored numbers as float64; integers and bools stay what they are, so that none loses digits."""
        if self.kind is not Kind.FLOAT:
            return stored
        if self.bfloat16:
            return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return stored.astype(np.float64)

    def encode(self, values: Array) -> Array:
        """Numbers as this element stores them: floats rounded to nearest even, integers wrapped as C does."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self.bfloat16:
                bits = np.asarray(values, np.float32).view(np.uint32)
                rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
                return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16)).astype(np.uint16)
            return np.asarray(values).astype(self.storage)

    def round(self, values: Array) -> Array:
        """float64 numbers as they are after a trip through this type; overflow gives an infinity."""
        return self.decode(self.encode(values)) if self.kind is Kind.FLOAT else values


def _floats(spelling: str, storage: Any, epsilon: float, bfloat16: bool = False) -> Element:
    dtype = np.dtype(storage)
    return Element(spelling, Kind.FLOAT, dtype, 1, dtype.itemsize, epsilon, bfloat16)


def _ints(spelling: str, storage: Any, kind: Kind = Kind.INT) -> Element:
    dtype = np.dtype(storage)
    return Element(spelling, kind, dtype, 1, dtype.itemsize, 0.0)


FLOAT32 = _floats("float", np.float32, 2.0**-23)
FLOAT64 = _floats("double", np.float64, 2.0**-52)
_HALF = _floats("__half", np.float16, 2.0**-10)
_BFLOAT16 = _floats("__nv_bfloat16", np.uint16, 2.0**-7, bfloat16=True)

_SCALARS: dict[str, Element] = {
    "float": FLOAT32, "double": FLOAT64, "float32_t": FLOAT32, "float64_t": FLOAT64,
    "__half": _HALF, "half": _HALF, "nv_half": _HALF,
    "__nv_bfloat16": _BFLOAT16, "nv_bfloat16": _BFLOAT16, "bfloat16": _BFLOAT16,
    "bool": _ints("bool", np.uint8, Kind.BOOL),
    "char": _ints("char", np.int8), "signed char": _ints("signed char", np.int8),
    "unsigned char": _ints("unsigned char", np.uint8),
    "short": _ints("short", np.int16), "unsigned short": _ints("unsigned short", np.uint16),
    "int": _ints("int", np.int32), "unsigned int": _ints("unsigned int", np.uint32),
    "long": _ints("long", np.int64), "unsigned long": _ints("unsigned long", np.uint64),
    "long long": _ints("long long", np.int64), "unsigned long long": _ints("unsigned long long", np.uint64),
    "int8_t": _ints("int8_t", np.int8), "uint8_t": _ints("uint8_t", np.uint8),
    "int16_t": _ints("int16_t", np.int16), "uint16_t": _ints("uint16_t", np.uint16),
    "int32_t": _ints("int32_t", np.int32), "uint32_t": _ints("uint32_t", np.uint32),
    "int64_t": _ints("int64_t", np.int64), "uint64_t": _ints("uint64_t", np.uint64),
    "size_t": _ints("size_t", np.uint64), "ssize_t": _ints("ssize_t", np.int64),
    "ptrdiff_t": _ints("ptrdiff_t", np.int64), "intptr_t": _ints("intptr_t", np.int64),
    "uintptr_t": _ints("uintptr_t", np.uint64),
    "uchar": _ints("uchar", np.uint8), "ushort": _ints("ushort", np.uint16), "uint": _ints("uint", np.uint32),
    "ulong": _ints("ulong", np.uint64),
}  # fmt: skip

_VECTOR_BASES = {
    "char": "char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short", "int": "int",
    "uint": "unsigned int", "long": "long", "ulong": "unsigned long", "longlong": "long long",
    "ulonglong": "unsigned long long", "float": "float", "double": "double",
}  # fmt: skip
_PAIRS = {"__half2": _HALF, "half2": _HALF, "__nv_bfloat162": _BFLOAT16, "nv_bfloat162": _BFLOAT16}


def element_of(spelling: str) -> Element | None:
    """The element of a C type's name (`unsigned`, `uint32_t`, `float4`, `__half`, ...), None for one we do not know."""
    name = re.sub(r"\b(const|volatile|struct|std::)\s*|std::|::", " ", spelling)
    name = " ".join(name.split())
    if (found := _SCALARS.get(name)) is not None:
        return found
    if (pair := _PAIRS.get(name)) is not None:
        return evolve(pair, spelling=name, lanes=2, itemsize=2 * pair.itemsize)
    if (match := re.fullmatch(r"([a-z]+)([1234])", name)) and match[1] in _VECTOR_BASES:
        base, lanes = _SCALARS[_VECTOR_BASES[match[1]]], int(match[2])
        return evolve(base, spelling=name, lanes=lanes, itemsize=lanes * base.storage.itemsize)
    return _integer_words(name)


def _integer_words(name: str) -> Element | None:
    """`long unsigned int` and its kin, whose words may stand in any order."""
    words = name.split()
    if not words or set(words) - {"unsigned", "signed", "int", "long", "short", "char"}:
        return None
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return _SCALARS[("unsigned " if sign else "signed " if "signed" in words else "") + "char"]
    if "short" in words:
        return _SCALARS[sign + "short"]
    if longs := words.count("long"):
        return _SCALARS[sign + ("long long" if longs > 1 else "long")]
    return _SCALARS[sign + "int"]
