"""The `//dice:` line that a user completes when a kernel's launch is not known: everything known, the rest a first guess."""

import re

from dice_lsp.records import BufferSpec, Kernel, LaunchSpec, Parameter, Role

_INTEGERS = re.compile(
    r"^(?:unsigned |signed )?(?:int|long|long long|short|char|size_t|u?int(?:8|16|32|64)_t|unsigned)$"
)
ONE_SIZE = ("1M | 1000003",)
SEVERAL_SIZES = ("1K | 1000", "1K | 777", "64 | 33")
"""First a size for the clock, then one that no block divides."""


def directive_line(kernel: Kernel, spec: LaunchSpec | None) -> str:
    """One line in the directive grammar, e.g. `//dice: n = 1M | 1000003; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>`."""
    known = spec or LaunchSpec(kernel.name)
    names = [dim.name for dim in known.dims] or _size_parameters(kernel)
    sizes = [f"{dim.name} = {' | '.join(map(str, dim.values))}" for dim in known.dims]
    if not sizes:
        guesses = ONE_SIZE if len(names) == 1 else SEVERAL_SIZES
        sizes = [f"{name} = {guesses[min(place, len(guesses) - 1)]}" for place, name in enumerate(names)]
    size = " * ".join(names)
    buffers = {buffer.name: buffer for buffer in known.buffers}
    parts = [", ".join(sizes)]
    for role in (Role.IN, Role.OUT, Role.IO, Role.TMP):
        named = [
            _buffer(parameter, buffers.get(parameter.name), size)
            for parameter in kernel.parameters
            if parameter.pointer and _role(parameter, buffers.get(parameter.name)) is role
        ]
        if named:
            parts.append(f"{role.value} {', '.join(named)}")
    grid = _triple(known.grid) or f"cdiv({size}, 256)"
    block = _triple(known.block) or "256"
    shared = f", {known.smem_bytes}" if known.smem_bytes not in ("", "0") else ""
    parts.append(f"launch <<<{grid}, {block}{shared}>>>")
    if kernel.template:
        arguments = ", ".join(
            f"{name} = {known.template.get(name) or _argument(kernel, name)}" for name in kernel.template
        )
        parts.append(f"with {arguments}")
    return "//dice: " + "; ".join(parts)


def _argument(kernel: Kernel, name: str) -> str:
    """A template argument to start from: a type for a type parameter, else a number."""
    is_type = re.search(rf"\b(?:typename|class)\s+{re.escape(name)}\b", kernel.template_spelling)
    return "float" if is_type else "32"


def _size_parameters(kernel: Kernel) -> list[str]:
    """The scalars that may count elements: every integer; without any, a new name."""
    integers = [item.name for item in kernel.parameters if not item.pointer and _INTEGERS.match(item.element)]
    return integers or ["n"]


def _role(parameter: Parameter, known: BufferSpec | None) -> Role:
    if known is not None:
        return known.role
    return Role.IN if parameter.const else Role.OUT


def _buffer(parameter: Parameter, known: BufferSpec | None, size: str) -> str:
    if known is None or not known.extents:
        return f"{parameter.name}[{size}]"
    return f"{parameter.name}[{', '.join(known.extents)}]"


def _triple(given: tuple[str, str, str] | None) -> str | None:
    if given is None:
        return None
    sizes = list(given)
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()
    return sizes[0] if len(sizes) == 1 else f"{{{', '.join(sizes)}}}"
