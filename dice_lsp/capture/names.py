"""Which kernel of a text a mangled name belongs to, and what it is called in C++.

The mangling is that of the Itanium C++ ABI, with what nvcc adds: `_INTERNAL_...` and `_GLOBAL__N_...` stand for static
functions and namespaces without a name, and `__nv_static_...` comes first in relocatable device code.
"""

import ctypes
import re
from collections.abc import Iterable
from functools import lru_cache

from dice_lsp.records import Kernel

_SOURCE_NAME = re.compile(r"L?(\d{1,4})")
_UNNAMED = ("_GLOBAL__N_", "_INTERNAL_", "_NV_ANON_NAMESPACE")
_VARIABLE = re.compile(r"__(?:constant|device|managed)__([^;(){}]*)(?=[;=])")
_INITIALISER = re.compile(r"=?\s*\{[^{}();]*\}(?=\s*[,;])")
_DECLARED = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?=,|=|$)")


def parts_of(symbol: str) -> tuple[tuple[str, ...], bool]:
    """Namespaces and name of a mangled function or variable, and whether template arguments follow."""
    if symbol.startswith("__nv_static_") and (at := symbol.rfind("__Z")) > 0:
        symbol = symbol[at + 1 :]
    if not symbol.startswith("_Z"):
        return (symbol,), False
    nested = symbol.startswith("_ZN")
    at = 3 if nested else 2
    parts: list[str] = []
    while (match := _SOURCE_NAME.match(symbol, at)) is not None:
        end = match.end() + int(match[1])
        if end > len(symbol):
            break
        parts.append(symbol[match.end() : end])
        at = end
        if not nested:
            break
    named = tuple(part for part in parts if not part.startswith(_UNNAMED))
    return named or (symbol,), symbol[at : at + 1] == "I"


@lru_cache(maxsize=1)
def _demangler() -> ctypes.CDLL | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            library = ctypes.CDLL(name)
            library.__cxa_demangle.restype = ctypes.c_void_p
            library.free.argtypes = [ctypes.c_void_p]
            return library
        except (OSError, AttributeError):
            continue
    return None


@lru_cache(maxsize=1024)
def demangled(symbol: str) -> str:
    """`void ours::scale<float, 16>(float*, int)`; the name alone where no C++ library can say more."""
    plain = symbol
    if symbol.startswith("__nv_static_") and (at := symbol.rfind("__Z")) > 0:
        plain = symbol[at + 1 :]
    library = _demangler()
    if library is not None and plain.startswith("_Z"):
        status = ctypes.c_int(0)
        found = library.__cxa_demangle(plain.encode(), None, None, ctypes.byref(status))
        if found:
            try:
                return (ctypes.string_at(found) or b"").decode("utf-8", "replace")
            finally:
                library.free(found)
    return "::".join(parts_of(symbol)[0])


def kernels_called(symbol: str, parameters: int, kernels: Iterable[Kernel]) -> list[Kernel]:
    """The kernels of a text that a mangled name with so many parameters may belong to; one if it is clear."""
    names, templated = parts_of(symbol)
    found = [kernel for kernel in kernels if kernel.name == names[-1]]
    for better in (
        [kernel for kernel in found if len(kernel.parameters) == parameters],
        [kernel for kernel in found if tuple(kernel.qualified_name.split("::")) == names],
        [kernel for kernel in found if bool(kernel.template) == templated],
    ):
        found = [kernel for kernel in found if kernel in better] or found
    return found


def device_variables(text: str) -> tuple[str, ...]:
    """Names of the `__constant__`, `__device__` and `__managed__` variables that a text declares."""
    found: dict[str, None] = {}
    for declaration in _VARIABLE.finditer(_INITIALISER.sub("", text)):
        for name in _DECLARED.findall(declaration[1].rstrip()):
            found[name] = None
    return tuple(found)
