"""Which host function of the file says what a kernel has to compute."""

import functools
import re
from collections.abc import Mapping

from dice_lsp.records import Kernel, Origin, Parameter, Reference
from dice_lsp.source.kernels import Function, SourceModel

_SUFFIXES = (
    "_ref",
    "_cpu",
    "_gold",
    "_golden",
    "_reference",
    "_naive",
    "_host",
    "_serial",
    "_on_host",
    "_on_cpu",
    "CPU",
    "Ref",
    "Gold",
    "Reference",
    "Host",
    "OnHost",
    "OnCPU",
    "Serial",
)
_PREFIXES = (
    "cpu_",
    "ref_",
    "host_",
    "gold_",
    "reference_",
    "naive_",
    "serial_",
    "compute_",
    "compute_cpu_",
    "cpu",
    "ref",
    "host",
    "compute",
)
_ENDS_ONLY = ("compute_", "compute")
"""Prefixes that mean the CPU only together with a suffix: `compute_norm_cpu`, and not `compute_norm`."""
_KERNEL_SUFFIX = re.compile(
    r"(?:_?[kK]ernels?|_?[oO]n_?(?:gpu|GPU|Gpu|device|Device)|_?[gG]pu|_?GPU|_?[cC]uda|_?CUDA|_?[dD]evice|_?d)(?:_?v?\d+)?$"
    r"|_?v?\d+$"
)
_PLACE = re.compile(
    r"^(?:[dh]_|dev_?|host_?|gpu_?|cpu_?|device_?|[gs]_)(?=\w)|(?<=\w)(?:_[dh]|_dev|_host|_gpu|_cpu|_device)$"
)
"""What a parameter's name says of where its memory is."""


def find_reference(
    kernel: Kernel, model: SourceModel, template: Mapping[str, str], others: Mapping[str, SourceModel] | None = None
) -> Reference | None:
    """The CPU function of a kernel: by its name, else the only host function with the same parameters.

    `others` are files around the text, by their paths, the nearest first: a function of theirs counts by its name alone.
    """
    hosts = [f for f in model.functions if f.is_host and not f.template and f.return_type in ("void", "")]
    fitting = [f for f in hosts if f.name != kernel.name and matched_parameters(f, kernel, template) is not None]
    for base in _bases(kernel.name):
        named = [f for f in fitting if f.name.lower() in _names(base)]
        if named:
            return Reference("function", named[0].name, Origin.INFERRED)
    text = model.text
    same = [
        f
        for f in fitting
        if [(p.name, p.pointer) for p in f.parameters] == [(p.name, p.pointer) for p in kernel.parameters]
        and "<<<" not in text[f.body_start : f.body_end]
        and any(p.pointer for p in f.parameters)
        and not _belongs_to_another(f, kernel, model)
    ]
    if len(same) == 1:
        return Reference("function", same[0].name, Origin.INFERRED)
    for base in _bases(kernel.name):
        for path, other in (others or {}).items():
            for function in other.functions:
                plain = function.is_host and not function.template and function.return_type in ("void", "")
                if plain and function.name.lower() in _names(base) and matched_parameters(function, kernel, template):
                    return Reference("function", function.name, Origin.INFERRED, path)
    return None


def may_hold_reference(kernel: Kernel, text: str) -> bool:
    """Whether a text has a word that a CPU function of the kernel may be called by; what has none need not be read."""
    lower = text.lower()
    return any(name in lower for base in _bases(kernel.name) for name in _names(base))


def _belongs_to_another(function: Function, kernel: Kernel, model: SourceModel) -> bool:
    """`relu_cpu` says what `relu` computes, and `relu_tiled` maybe; it says nothing about a `square` of the same file."""
    return any(
        base.lower() not in kernel.name.lower() and function.name.lower() in _names(base)
        for other in model.kernels
        for base in _bases(other.name)
    )


@functools.lru_cache(maxsize=4096)
def _names(base: str) -> frozenset[str]:
    """What the CPU function of a kernel called `base` may be called, in lower case."""
    names = {base + suffix for suffix in _SUFFIXES}
    names |= {prefix + base for prefix in _PREFIXES if prefix not in _ENDS_ONLY}
    names |= {prefix + base + suffix for prefix in _ENDS_ONLY for suffix in _SUFFIXES}
    return frozenset(name.lower() for name in names)


def _bases(name: str) -> tuple[str, ...]:
    bases = [name]
    while (shorter := _KERNEL_SUFFIX.sub("", bases[-1])) not in ("", bases[-1]):
        bases.append(shorter)
    if name.startswith(("k_", "gpu_", "cuda_", "kernel_")):
        bases.append(name.split("_", 1)[1])
    return tuple(bases)


def matched_parameters(function: Function, kernel: Kernel, template: Mapping[str, str]) -> dict[str, str] | None:
    """Function parameter -> kernel parameter: by name, or by position where both lists have the same types."""
    own = {parameter.name: parameter for parameter in kernel.parameters}
    if not function.parameters:
        return None

    def alike(a: Parameter, b: Parameter) -> bool:
        element = template.get(b.element, b.element)
        return a.pointer == b.pointer and a.indirections == b.indirections and (
            a.element == element or (not a.pointer and {a.element, element} <= _SIZES)
        )  # fmt: skip

    writable = {p.name for p in kernel.parameters if p.pointer and not p.const}
    plain = {_PLACE.sub("", label): parameter for label, parameter in own.items()}
    placed = {p.name: plain.get(_PLACE.sub("", p.name)) for p in function.parameters}
    if all(p.name in own and alike(p, own[p.name]) for p in function.parameters):
        names = {p.name: p.name for p in function.parameters}
        return names if writable <= names.keys() else None
    if len(function.parameters) == len(kernel.parameters) and all(
        alike(a, b) for a, b in zip(function.parameters, kernel.parameters, strict=True)
    ):
        return {a.name: b.name for a, b in zip(function.parameters, kernel.parameters, strict=True)}
    # `h_x` of the host is `d_x` of the device, whatever else the kernel is told.
    names = {label: parameter.name for label, parameter in placed.items() if parameter is not None}
    if len(plain) == len(own) and len(set(names.values())) == len(function.parameters) == len(names):
        if writable <= set(names.values()) and all(alike(p, own[names[p.name]]) for p in function.parameters):
            return names
    return None


_SIZES = {
    "int",
    "unsigned int",
    "long",
    "size_t",
    "unsigned long",
    "long long",
    "unsigned long long",
    "int64_t",
    "uint32_t",
}
