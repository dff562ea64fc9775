"""What a kernel needs that no launch from here can give it, read from its parameters and from the text.

A kernel that reads memory which only the program fills would compute nonsense here, and the kernel would be blamed for
it. A recorded launch holds that memory, so that each sentence ends in how to record one; what cannot be recorded says so.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from dice_lsp.records import Kernel, Parameter
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.slice import mask

CAPTURE = "record a run with `dice-lsp capture -- ./program`"
_WORD = re.compile(r"[A-Za-z_]\w*")
_SYMBOL_SETTER = re.compile(r"\b(?:cuda|hip)(MemcpyToSymbol(?:Async)?|GetSymbolAddress)\s*(?:<[^<>;]*>\s*)?\(")
_OPAQUE = {
    "cudaTextureObject_t": "texture",
    "cudaSurfaceObject_t": "surface",
    "CUtexObject": "texture",
    "CUsurfObject": "surface",
    "CUtensorMap": "tensor map",
}
"""Types of parameters that are handles of the driver: their bytes mean something in the process that made them alone."""
_TEXTURE_REFERENCE = re.compile(r"\b(?:texture|surface)\s*<[^;{}()]*>\s*(\w+)\s*;")
_MANAGED = re.compile(r"\b__managed__\b([^;{}()=]*)[;={]")
_DECLARED_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")


def why_not(kernel: Kernel, model: SourceModel) -> tuple[str, ...]:
    """One sentence for each thing of a kernel that neither a //dice: line nor inference can give it; none for most."""
    return tuple(dict.fromkeys((*_of_parameters(kernel.parameters), *_of_memory(kernel, model))))


def opaque_kind(element: str) -> str | None:
    """`texture`, `surface` or `tensor map` where values of a type are handles of the driver."""
    words = _WORD.findall(element)
    return next((_OPAQUE[word] for word in words if word in _OPAQUE), None)


def _of_parameters(parameters: tuple[Parameter, ...]) -> Iterator[str]:
    for parameter in parameters:
        if (kind := opaque_kind(parameter.element)) is not None:
            yield f"`{parameter.name}` is a {kind}, which only the program itself can make: the kernel is not run here"
        elif parameter.pointer and parameter.indirections > 1:
            yield f"{parameter.name} is a pointer to pointers, which a launch from here cannot fill"


def _of_memory(kernel: Kernel, model: SourceModel) -> Iterator[str]:
    setters, textures, managed = _memory_of(model.text)
    if not (setters or textures or managed):
        return
    names = _reached_names(kernel, model)
    for name in sorted(textures & names):
        yield f"`{name}` is a texture, which only the program itself can make: the kernel is not run here"
    for name in sorted(setters.keys() & names - textures):
        yield f"`{name}` is set by the program ({setters[name]}) before the launch: {CAPTURE}"
    for name in sorted(managed & names):
        yield f"`{name}` is managed memory, which the program may set before the launch: {CAPTURE}"


@lru_cache(maxsize=16)
def _memory_of(text: str) -> tuple[Mapping[str, str], frozenset[str], frozenset[str]]:
    """Symbols that the host sets -> the call that does, names of texture references, names of managed variables."""
    if "Symbol" not in text and "__managed__" not in text and not re.search(r"\b(?:texture|surface)\s*<", text):
        return {}, frozenset(), frozenset()
    code = mask(text)
    setters: dict[str, str] = {}
    for call in _SYMBOL_SETTER.finditer(code):
        arguments = _arguments(code, call.end())
        if not arguments:
            continue
        target = arguments[1] if call[1] == "GetSymbolAddress" and len(arguments) > 1 else arguments[0]
        # `coef`, `ours::coef`, `(const void*)coef`, `HIP_SYMBOL(coef)` and `table[0]`: the last name before an index.
        words = _WORD.findall(target.partition("[")[0])
        if words:
            setters.setdefault(words[-1], f"cuda{call[1]}")
    textures = frozenset(match[1] for match in _TEXTURE_REFERENCE.finditer(code))
    declared = (_DECLARED_NAME.search(match[1].strip()) for match in _MANAGED.finditer(code))
    return setters, textures, frozenset(match[1] for match in declared if match is not None)


def _arguments(code: str, start: int) -> list[str]:
    """The arguments of a call whose parenthesis ends at `start`; none when it is not closed."""
    parts, depth = [""], 1
    for character in code[start : start + 4000]:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return [part.strip() for part in parts]
        if character == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += character
    return []


def _reached_names(kernel: Kernel, model: SourceModel) -> frozenset[str]:
    """Every identifier of the kernel's body, of the functions that it may call, and of the macros that these use."""
    bodies: dict[str, list[str]] = {}
    for function in model.functions:
        if function.is_device or not function.is_host:
            bodies.setdefault(function.name, []).append(model.text[function.start : function.end])
    macros = _macros_of(model.text)
    seen: set[str] = set()
    waiting = set(_WORD.findall(mask(model.text[kernel.start : kernel.end])))
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for text in (*bodies.get(name, ()), *macros.get(name, ())):
            waiting |= set(_WORD.findall(mask(text))) - seen
    return frozenset(seen)


@lru_cache(maxsize=16)
def _macros_of(text: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\\\r\n]|\\\r?\n|\\.)*)", text, re.MULTILINE):
        found[match[1]] = (*found.get(match[1], ()), match[2])
    return found
