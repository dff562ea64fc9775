"""How the tests of the host emulation prepare and launch: a kernel's text in, results out, with a real compiler."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dice_lsp.records import Compiled
from dice_lsp.source.kernels import parse
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import BlockOrder, BufferArgument, Guard, Launch, RunResult, ScalarArgument, Source

COMPILED = Compiled("sm_90", "nvrtc", "k", 16, 0, 0, 0, 0, 256, 1.0, "none", 1.0)


def source(text: str, name: str | None = None, **more: Any) -> Source:
    kernels = parse(text).kernels
    kernel = next(k for k in kernels if name is None or k.name == name)
    return Source(text, more.pop("path", "/nowhere/kernel.cu"), kernel, compiled=more.pop("compiled", COMPILED), **more)


def argument(name: str, value: Any, writable: bool = False, itemsize: int | None = None) -> Any:
    if isinstance(value, np.ndarray):
        return BufferArgument(name, value, itemsize or value.dtype.itemsize, writable)
    return ScalarArgument(name, np.asarray(value).tobytes())


def launch(
    grid: Any,
    block: Any,
    ins: Mapping[str, Any],
    outs: Sequence[str] = (),
    itemsizes: Mapping[str, int] = {},
    **more: Any,
) -> Launch:
    def three(size: Any) -> tuple[int, int, int]:
        size = size if isinstance(size, tuple) else (size,)
        return (*size, *(1,) * (3 - len(size)))

    arguments = tuple(argument(n, v, n in outs, itemsizes.get(n)) for n, v in ins.items())
    return Launch(three(grid), three(block), more.pop("smem_bytes", 0), arguments, **more)


def run(backend: HostBackend, text: str, one: Launch, name: str | None = None, **more: Any) -> RunResult:
    prepared = backend.prepare(source(text, name, **more))
    if not hasattr(prepared, "run"):
        return prepared  # type: ignore[return-value]
    return prepared.run([one])[0]


ORDERS = tuple(BlockOrder)
GUARDS = tuple(Guard)
