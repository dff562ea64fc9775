"""What a device is asked to run, and what it answers: the small protocol that every back end speaks.

`worker.host` (fibers on the CPU) and `worker.device` (pycuda or cuda-core) implement `Backend`; `worker.verify` and
`worker.benchmark` only know this file. A back end never decides whether a kernel is right: it runs and reports.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, Union

from attrs import field, frozen
from numpy.typing import NDArray

from dice_lsp.records import Compiled, CompileFailed, Kernel

Array = NDArray[Any]


@frozen(eq=False)
class BufferArgument:
    """A pointer argument. `initial` (1-D, the pointee's dtype, vector types flattened) is copied in before the run.

    `itemsize` is the size of one element as the kernel sees it (16 for float4): guards are aligned to it.
    """

    name: str
    initial: Array
    itemsize: int
    writable: bool
    """False for buffers the kernel must not change: the back end reports a change as `mutated`."""
    repeats: int = 1
    """The buffer is `initial` this many times over; only in a launch with `windows`."""
    passed: bool = True
    """False for memory that is no argument itself: others point into it."""


@frozen
class Pointer:
    """An address among the bytes of a by-value argument, which the back end fills in once the buffers have a place."""

    offset: int
    """Of its first byte in the argument."""
    buffer: str
    """Name of a buffer of the same launch."""
    byte_offset: int = 0
    """Where in the buffer it points; one past the last byte at most."""


@frozen
class ScalarArgument:
    """A by-value argument, as the bytes that the kernel receives."""

    name: str
    data: bytes
    pointers: tuple[Pointer, ...] = ()
    """What is an address in `data`: a struct's pointers, or the whole of it for a pointer into a buffer."""


Argument = Union[BufferArgument, ScalarArgument]


class BlockOrder(StrEnum):
    """In which order the host emulation runs the threads of a block and the blocks of a grid."""

    ASCENDING = "ascending"
    DESCENDING = "descending"
    RANDOM = "random"


class Guard(StrEnum):
    """At which end of a buffer an access past it faults at once; the other end is watched by canary bytes."""

    RIGHT = "right"
    LEFT = "left"


@frozen(eq=False)
class Launch:
    """One run of one kernel."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    arguments: tuple[Argument, ...]
    order: BlockOrder = BlockOrder.ASCENDING
    guard: Guard = Guard.RIGHT
    seed: int = 0
    deadline_s: float = 10.0
    extra_smem_bytes: int = 0
    """Dynamic shared memory that the kernel does not know of, so that fewer blocks are resident; GPU only."""
    shift_bytes: int = 0
    """Every buffer begins this many bytes past where a vector may be read from, see `BufferArgument.itemsize`."""
    windows: tuple[int, ...] = ()
    """With repeated buffers: the repetitions that come back, one behind the other (GPU only). Of a buffer that is not
    repeated every window is the whole of it."""
    variables: Mapping[str, bytes] = field(factory=dict)
    """What variables of the device code hold when the launch begins, by their mangled names; others as the code says."""


@frozen(eq=False)
class Ran:
    """The kernel ended. `outputs` holds every buffer after the run, in the dtype and length it came with."""

    outputs: Mapping[str, Array]
    elapsed_ms: float
    notes: tuple[str, ...] = ()
    """Things worth telling that are no fault, e.g. `uses printf`."""
    changed_state: tuple[str, ...] = ()
    """Device variables that hold something else after the launch than before it."""


@frozen
class Faulted:
    """The kernel broke a rule while it ran; `hazard` is one of `records.Unsafe.hazard`."""

    hazard: str
    where: str


@frozen
class NotSupported:
    """This back end cannot run the kernel; never a pass. `reason` is one phrase, e.g. `inline PTX is not supported on the host`."""

    reason: str


READ_UNORDERED = "is read while other threads may write it, and nothing orders the two"
"""How a note of a run ends that a user should see: an integer buffer raced, but the results did not depend on it."""

RunResult = Union[Ran, Faulted, NotSupported]


@frozen
class Source:
    """Everything a back end may need to prepare a kernel: the GPU takes `compiled.cubin`, the host compiles `device_text`."""

    device_text: str
    """The device slice of the document, line numbers kept."""
    path: str
    kernel: Kernel
    template: Mapping[str, str] = field(factory=dict)
    compiled: Compiled | None = None
    include_dirs: tuple[str, ...] = ()
    pre_includes: tuple[str, ...] = ()
    """Headers that are included before `device_text`, by their absolute paths."""
    flags: tuple[str, ...] = ()
    function: str | None = None
    """When set, prepare this host function of the file (a CPU reference) instead of the kernel; host back end only."""
    fp64: bool = False
    """On the host: compute in double precision; `float` buffers and scalars are then passed as doubles."""
    arithmetic: str = ""
    """With `function`: `fused` contracts `a * b + c` as a device compiler may; `defined` stops where C leaves the result open."""


class Prepared(Protocol):
    """A kernel that is ready to run on its back end."""

    def run(self, launches: Sequence[Launch]) -> list[RunResult]:
        """Run the launches in order. Stops after the first that did not end as `Ran`, so the list may be shorter."""


class Backend(Protocol):
    """A device that runs kernels."""

    name: str
    """`host`, or the GPU's name."""
    kind: str
    """`host`, `pycuda` or `cuda-core`."""

    def prepare(self, source: Source) -> "Prepared | CompileFailed | NotSupported":
        """Make a kernel ready. A compile error of the back end's own compiler is a value."""

    def close(self) -> None:
        """Give everything back; running children are killed."""
