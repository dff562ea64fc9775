"""The stopwatch of the runner child: single launches, each led in alike and between two notes of the card's own time."""

import ctypes
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import define, evolve, frozen
from cuda.bindings import driver as cu

from dice_lsp import process
from dice_lsp.worker.gpu_driver import (
    NOT_FOUND,
    UNLOADABLE,
    Bytes,
    Dim3,
    Driver,
    DriverError,
    Function,
    allow_dynamic_smem,
    ask,
    blank_arguments,
    error_name,
    with_addresses,
)
from dice_lsp.worker.monitor import POWER_CAP_BIT, Monitor

log = logging.getLogger(__name__)

OUTPUT_POISON = 0xFF
SLOWEST_US = 2e6
SINGLE_US = 20.0
"""From here on launches are timed one at a time, below in rows: see `Stopwatch`."""
SETS = 6
"""How many sets of buffers single launches rotate: places of buffers differ, and so do the inputs."""
MOST_SETS = 2048
ROTATED_L2 = 5
"""The sets of a row are together so many times the L2, so that each launch finds it cold."""
RESTORED_ROW_US = 300.0
"""How long a row with restored buffers should be: each launch of it needs buffers of its own."""
FASTEST_BYTES_PER_US = 8e6
"""No memory of today is faster."""
CHECKED_BYTES = 512 << 20
"""How much of what the timed runs wrote is read back; of more, evenly spaced sets are."""
SWEEP_FACTOR = 2
"""How many times the L2 is read between two cold launches. Its replacement is not by age alone, so once is too little."""
CLOCK_SLOTS = 512
"""Multiprocessors that a reading of the clocks has room for."""
CLOCK_BYTES = 2 * CLOCK_SLOTS * 16
"""The readings before and after a replay."""
MOST_IN_ROW = 2048
MOST_LAUNCHES = 64
NOTES_BYTES = CLOCK_BYTES + 16 * MOST_LAUNCHES
"""The clocks, and two times for each launch of a replay, or for all in a row."""
MOST_KERNELS = 512
"""Of a replay, so that graphs stay quick to make."""
MOST_RUNS = 8
MOST_REPLAYS = MOST_RUNS + 2
"""Of a block: its runs, and the empty kernels of its halves."""
NOTES_ROOM = 16 << 20
FALLEN_CLOCK = 0.97
MOST_PAUSES_S = 1.0
REMEMBERED = 1.5
"""From which ratio a launch on numbers never seen before is suspiciously slow beside the next ones on the same."""
CLOSER_LOOK_US = 20_000.0
"""Up to here a program is always looked at for a memory, above only where a launch was suspicious."""
LONG_WAIT_US = 1e6
"""Work that takes longer is not queued in one go, so that a cancel need not wait for it."""
REMEMBERED_US = 2.0
"""And by how much, so that no flicker of a short launch is taken for it."""
FRESH_LOADS = 5

OWN_PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry dice_empty()
{
    ret;
}
.visible .entry dice_sweep(.param .u64 from, .param .u64 count, .param .u64 sink)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<6>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r3, %r1, %r2, %r3;
    mov.u32 %r1, %nctaid.x;
    mul.lo.u32 %r2, %r1, %r2;
    cvt.u64.u32 %rd3, %r3;
    cvt.u64.u32 %rd4, %r2;
    shl.b64 %rd5, %rd3, 4;
    add.u64 %rd1, %rd1, %rd5;
    shl.b64 %rd6, %rd4, 4;
    mov.f32 %f5, 0f00000000;
    bra CHECK;
NEXT:
    ld.global.cg.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
    add.f32 %f1, %f1, %f2;
    add.f32 %f3, %f3, %f4;
    add.f32 %f1, %f1, %f3;
    add.f32 %f5, %f5, %f1;
    add.u64 %rd1, %rd1, %rd6;
    add.u64 %rd3, %rd3, %rd4;
CHECK:
    setp.lt.u64 %p1, %rd3, %rd2;
    @%p1 bra NEXT;
    setp.eq.f32 %p2, %f5, 0f4640E400;
    @!%p2 ret;
    ld.param.u64 %rd7, [sink];
    st.global.f32 [%rd7], %f5;
    ret;
}
.visible .entry dice_fill(.param .u64 to, .param .u64 count)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r3, %r1, %r2, %r3;
    mov.u32 %r1, %nctaid.x;
    mul.lo.u32 %r2, %r1, %r2;
    cvt.u64.u32 %rd3, %r3;
    cvt.u64.u32 %rd4, %r2;
    shl.b64 %rd5, %rd3, 4;
    add.u64 %rd1, %rd1, %rd5;
    shl.b64 %rd6, %rd4, 4;
    mov.u32 %r1, -1;
    bra CHECK;
NEXT:
    st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};
    add.u64 %rd1, %rd1, %rd6;
    add.u64 %rd3, %rd3, %rd4;
CHECK:
    setp.lt.u64 %p, %rd3, %rd2;
    @%p bra NEXT;
    ret;
}
.visible .entry dice_copy(.param .u64 to, .param .u64 count, .param .u64 from)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [count];
    ld.param.u64 %rd7, [from];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r3, %r1, %r2, %r3;
    mov.u32 %r1, %nctaid.x;
    mul.lo.u32 %r2, %r1, %r2;
    cvt.u64.u32 %rd3, %r3;
    cvt.u64.u32 %rd4, %r2;
    shl.b64 %rd5, %rd3, 4;
    add.u64 %rd1, %rd1, %rd5;
    add.u64 %rd7, %rd7, %rd5;
    shl.b64 %rd6, %rd4, 4;
    bra CHECK;
NEXT:
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd7];
    st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};
    add.u64 %rd1, %rd1, %rd6;
    add.u64 %rd7, %rd7, %rd6;
    add.u64 %rd3, %rd3, %rd4;
CHECK:
    setp.lt.u64 %p, %rd3, %rd2;
    @%p bra NEXT;
    ret;
}
.visible .entry dice_time(.param .u64 place)
{
    .reg .b64 %rd<3>;
    mov.u64 %rd1, %globaltimer;
    ld.param.u64 %rd2, [place];
    st.global.u64 [%rd2], %rd1;
    ret;
}
.visible .entry dice_clock(.param .u64 place)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd<5>;
    mov.u32 %r, %smid;
    setp.ge.u32 %p, %r, 512;
    @%p ret;
    ld.param.u64 %rd1, [place];
    mul.wide.u32 %rd2, %r, 16;
    add.u64 %rd1, %rd1, %rd2;
    mov.u64 %rd3, %globaltimer;
    mov.u64 %rd4, %clock64;
    st.global.v2.u64 [%rd1], {%rd3, %rd4};
    ret;
}
\0"""
"""Our own kernels, which the driver compiles for whatever card is there: one that does nothing; one that reads `count`
groups of four floats (and stores their sum if it is 12345, which zeros never give); one that fills as many with ones in
every bit, and one that copies them; one that notes the time in nanoseconds; and one that notes, for its multiprocessor,
the time and its clock."""
RESTORED = ("io",)
"""Roles of buffers that a kernel finds with their first values at every launch, also while it is timed."""
POISONED = ("out", "tmp")
"""Roles of buffers whose first values are nobody's."""


class Card(Protocol):
    """What a stopwatch needs of the runner that owns the context."""

    driver: Driver
    bus_id: str
    arena: Bytes

    def attribute(self, name: str) -> int:
        """A device attribute by its name in the driver, less `CU_DEVICE_ATTRIBUTE_`."""

    def cubin(self, program: Mapping[str, Any]) -> bytes:
        """The device code that a program of the parent's names."""

    def set_variables(self, function: Function, variables: Mapping[str, str]) -> str | None:
        """Give variables of freshly loaded device code what they should hold; one sentence if one is not there."""


@define
class _Buffer:
    """One pointer argument in all rotated sets. Written ones exist as often as there are programs."""

    name: str
    role: str
    nbytes: int
    stride: int
    offsets: list[int]
    slabs: list[int]
    """Device address of set 0: of the only copy for an input, of each copy for a written buffer."""
    pristine: list[int]
    """For restored buffers: the device address of the untouched values, one per seed."""

    def address(self, copy: int, index: int) -> int:
        return self.slabs[copy if len(self.slabs) > 1 else 0] + index * self.stride


@frozen
class Run:
    """One timed replay: which program, on which copy of the written buffers, from which load of its code."""

    program: int
    copy: int
    code: int


Action = Callable[[], None]


@frozen
class _Replay:
    """A graph that times, its number in the block, which says where it notes what, and what stands between its notes."""

    graph: Any
    number: int
    count: int
    """Pairs of notes."""
    in_row: int = 1
    """Launches between two notes."""

    def times_us(self, notes: "Sequence[Notes]") -> list[float]:
        """Per launch, what noting the time takes included."""
        return [time_us / self.in_row for time_us in notes[self.number].times_us(self.count)]


_SECOND_HALF = (Run(1, 0, 0), Run(0, 1, 0), Run(0, 0, 1), Run(1, 1, 1))


def block_halves(programs: int, short: bool = False) -> tuple[tuple[Run, ...], ...]:
    """The replays of one block, in order; empty kernels run before each half.

    One program is one replay. Of two, each runs on each copy from each load of its code, in the order 0110 1001, and
    the first half is the second with the programs exchanged: whatever depends on the place in a half, on what ran
    just before, on a slow drift (its linear and its quadratic part), on where a copy or a load of code lies, is met by
    both alike and leaves the ratio of their means. A short block, for kernels so slow that what ran before them cannot
    matter, is the second half alone, from one load of the code: copies and a linear drift still cancel.

    On each copy the last replay of the second half is that of the copy's own number: what lies there afterwards
    is what program 0, or 1, has written.
    """
    if programs == 1:
        return ((Run(0, 0, 0),),)
    if short:
        return (tuple(evolve(run, code=0) for run in _SECOND_HALF),)
    return (tuple(evolve(run, program=1 - run.program) for run in _SECOND_HALF), _SECOND_HALF)


class Stopwatch:
    """Times one or two programs and an empty kernel of the same launch shape, interleaved.

    All is done by replays of CUDA graphs of kernels. A replay first makes the card ready, outside of what is timed: what
    the kernel writes is poisoned, what it reads and writes is restored, and for cold times the L2 is filled by reading other
    memory, because a fill by writing would leave dirty lines for the timed launches to wait for. Then a kernel of one
    thread notes the card's time, what is timed runs, and another such kernel notes the time.

    Short kernels are timed in rows of K launches back to back, over R sets of buffers that are together at least
    `ROTATED_L2` times the L2; K is a multiple of R, or R is cut into pieces. The gap between two kernels of a graph differs
    by up to a tenth of a microsecond from place to place and from graph to graph, which a row of hundreds evens out: a
    short kernel against itself was 2 % faster or slower where launches were timed singly. A row's launches overlap their
    first and last blocks, and each writes back what the one before has left dirty.

    Cold kernels from `SINGLE_US` on are timed one launch at a time, each made ready for, so that all of a launch is seen, on a
    card with nothing else to do; what two notes around an empty kernel add is measured in every block and taken off but
    for what an empty kernel costs in a row. Buffers that are read and written allow one launch of a row each: K = R.

    A sample of one program is the mean of a replay. A sample of two is a block of eight (`block_halves`), and what is
    kept of each program is the mean of its four. That is because a program's time depends on more than its code: a buffer's
    physical pages decide which memory channels a strided access meets, so that the very same code was 1.5 % slower on
    one copy of its output than on another; and the first to run after the empty kernels meets another card than the
    second. Were each program to keep its own copy and its own place, that would be told as a difference of the
    programs. Inputs exist once, both programs read the same addresses, so their place favours neither.

    Before the last samples the inputs are exchanged among the sets in place, and one of them was not on the card before:
    an answer that was kept for an address is the wrong one then, and one that is kept for the numbers has to be
    computed first, which takes longer than the launches after it (`_remembered`). What is handed back of program 0 was
    written by program 0 while it was timed.
    """

    def __init__(self, card: Card, params: Mapping[str, Any], job: process.Job) -> None:
        self.card = card
        self.driver = card.driver
        self.stream = card.driver.stream
        self.params = params
        self.job = job
        self.grid: Dim3 = tuple(params["grid"])
        self.block: Dim3 = tuple(params["block"])
        self.smem_bytes = int(params["smem_bytes"])
        self.l2_bytes = card.attribute("L2_CACHE_SIZE")
        self.multiprocessors = card.attribute("MULTIPROCESSOR_COUNT")
        self.releases: list[Callable[[], None]] = []
        self.programs: list[list[Function]] = []
        self.missing: str | None = None
        """What a program lacks of the variables that it should be given."""
        """Each program as often as its code is loaded."""
        self.buffers: list[_Buffer] = []
        self.seeds = int(params["seeds"])
        self.exchanged = False
        self.lost = False
        self.executables: dict[int, Any] = {}
        """By the handle of the graph."""

    # Setting up

    def measure(self, idle_s: float) -> Any:
        monitor = Monitor(self.card.bus_id)
        busy = monitor.busy_reason(idle_s)
        if busy is not None:
            return {"declined": busy}
        self._forget_persisting_lines()
        try:
            return self._measure(monitor)
        finally:
            self._release()

    @staticmethod
    def _forget_persisting_lines() -> None:
        """A kernel verified before may have asked for lines that stay in the L2; a card without them answers an error."""
        cu.cuCtxResetPersistingL2Cache()
        cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)

    def _release(self) -> None:
        if not self.lost and int(cu.cuCtxSynchronize()[0]) == 0:
            for release in reversed(self.releases):
                release()

    def _allocate(self, nbytes: int) -> int:
        address = self.driver.allocate(nbytes)
        self.releases.append(lambda: self.driver.free(address))
        return address

    def _load_once(self, number: int) -> Function:
        program = self.params["programs"][number]
        function = self.driver.load(self.card.cubin(program), program["symbol"], self.smem_bytes)
        self.driver.get_ready(function, blank_arguments(self.params["arguments"]), self.smem_bytes)
        self.missing = self.card.set_variables(function, self.params.get("variables", {}))
        return function

    def _load(self) -> dict[str, Any] | None:
        """Load the code, of two programs in the order 0110; an answer if that of a program does not load here."""
        count = len(self.params["programs"])
        self.programs = [[] for _ in range(count)]
        for number in (*range(count), *(reversed(range(count)) if count > 1 else ())):
            try:
                self.programs[number].append(self._load_once(number))
                if self.missing is not None:
                    return {"declined": self.missing}
            except DriverError as error:
                if error.code in UNLOADABLE or error.code == NOT_FOUND:
                    return {"unloadable": {"program": number, "reason": error_name(error.code)}}
                raise
        module = ask(cu.cuModuleLoadData, OWN_PTX)
        self.empty, self.sweep, self.filling, self.copying, self.time, self.clock = (
            ask(cu.cuModuleGetFunction, module, b"dice_" + name)
            for name in (b"empty", b"sweep", b"fill", b"copy", b"time", b"clock")
        )
        allow_dynamic_smem(self.empty, self.smem_bytes)
        return None

    def _sets(self) -> tuple[int, int, bool]:
        """How many sets a row rotates, how many single launches do, and whether they find the cache cold.

        No sets for a row: so many as it takes to be cold do not fit.
        """
        set_bytes = sum(int(a["nbytes"]) for a in self.params["arguments"] if "data" not in a)
        if not set_bytes:
            return 1, 1, False
        most = max(1, min(MOST_SETS, self._room()))
        cold = bool(self.params["cold"])
        wanted = ROTATED_L2 * self.l2_bytes
        in_row = -(-wanted // set_bytes) + (set_bytes < wanted) if cold else 1
        if any(a.get("role") in RESTORED and a["nbytes"] for a in self.params["arguments"]):
            enough = math.ceil(RESTORED_ROW_US / (1.0 + set_bytes / FASTEST_BYTES_PER_US))
            room = most if cold else max(1, min(most, self.l2_bytes // 2 // set_bytes))
            in_row = in_row if in_row > room else min(room, max(in_row, enough))
        return in_row if in_row <= most else 0, min(SETS, most) if cold else 1, cold

    def _footprint(self) -> int:
        """Bytes of one set, written buffers as often as there are programs."""
        copies = len(self.params["programs"])
        pointers = [a for a in self.params["arguments"] if "data" not in a]
        return sum(int(a["nbytes"]) * (1 if a["role"] == "in" else copies) for a in pointers)

    def _room(self) -> int:
        """How many sets take no more than half of the free memory."""
        return int(ask(cu.cuMemGetInfo)[0]) // 2 // max(1, self._footprint())

    def _fill(self, sets: int) -> None:
        for argument in self.params["arguments"]:
            if "data" in argument:
                continue
            nbytes, role = int(argument["nbytes"]), argument["role"]
            stride = -(-max(1, nbytes) // 256) * 256
            copies = 1 if role == "in" else len(self.programs)
            slabs = [self._allocate(stride * sets) for _ in range(copies)]
            buffer = _Buffer(argument["name"], role, nbytes, stride, argument["offsets"], slabs, [])
            self.buffers.append(buffer)
            if role in RESTORED and nbytes:
                for offset in buffer.offsets:
                    buffer.pristine.append(self._allocate(stride))
                    self.driver.upload(buffer.pristine[-1], self.card.arena[offset : offset + nbytes])
        self._bring_inputs(sets)

    def _bring_inputs(self, sets: int) -> None:
        """Put each set's inputs where they belong."""
        first: dict[int, int] = {}
        for index in range(sets):
            first.setdefault(self.seed_of(index), index)
        inputs = [buffer for buffer in self.buffers if buffer.role == "in" and buffer.nbytes]
        for buffer in inputs:
            for seed, index in first.items():
                offset = buffer.offsets[seed]
                self.driver.upload(buffer.address(0, index), self.card.arena[offset : offset + buffer.nbytes])
        # Copies from plain memory may still be under way when they return, on no stream of ours.
        ask(cu.cuCtxSynchronize)
        for buffer in inputs:
            for index in range(sets):
                if (source := first[self.seed_of(index)]) != index:
                    to, origin = buffer.address(0, index), buffer.address(0, source)
                    ask(cu.cuMemcpyDtoDAsync, to, origin, buffer.nbytes, self.stream)

    def seed_of(self, index: int) -> int:
        """Which inputs a set holds. The last seed is kept back until the exchange, which also gives each set new ones."""
        return seed_of_set(index, self.seeds, self.exchanged)

    def _arguments(self, copy: int, index: int) -> list["int | bytes"]:
        addresses = {buffer.name: buffer.address(copy, index) for buffer in self.buffers}
        seed = self.seed_of(index)
        return [
            with_addresses(bytes.fromhex(a["data"][seed]), a.get("pointers", ()), addresses)
            if "data" in a
            else addresses[a["name"]]
            for a in self.params["arguments"]
            if a.get("passed", True)
        ]

    # What is queued

    def _lead_in(self, cold: bool, copy: int, indices: Sequence[int], wipe: bool = True) -> list[Action]:
        """Everything that makes the launches on these sets like any others; without `wipe`, outputs and scratch stay."""
        actions = []
        first, last = min(indices), max(indices)
        for buffer in self.buffers:
            if not buffer.nbytes:
                continue
            if buffer.role in RESTORED:
                for index in sorted(set(indices)):
                    source = buffer.pristine[self.seed_of(index)]
                    actions.append(self._over(self.copying, buffer.address(copy, index), buffer.nbytes, source))
            elif buffer.role in POISONED and wipe:
                nbytes = buffer.nbytes + (last - first) * buffer.stride
                actions.append(self._over(self.filling, buffer.address(copy, first), nbytes))
        return actions + self._cool_cache(cold)

    def _over(self, function: Any, to: int, nbytes: int, *more: int) -> Action:
        """Fill or copy in groups of 16 bytes; a set's share of a buffer is a multiple of them."""
        groups = -(-nbytes // 16)
        blocks = min(4 * self.multiprocessors, -(-groups // 512))
        return self._own(function, (blocks, 1, 1), (512, 1, 1), 0, to, groups, *more)

    def _cool_cache(self, cold: bool) -> list[Action]:
        words = (self.swept, SWEEP_FACTOR * self.l2_bytes // 16, self.swept)
        return [self._own(self.sweep, (4 * self.multiprocessors, 1, 1), (512, 1, 1), 0, *words)] if cold else []

    def _launch(self, run: Run, index: int) -> Action:
        function, arguments = self.programs[run.program][run.code], self._arguments(run.copy, index)
        return lambda: self.driver.launch(function, self.grid, self.block, self.smem_bytes, arguments)

    def _own(self, function: Any, grid: Dim3, block: Dim3, smem_bytes: int, *words: int) -> Action:
        """One of our own kernels; its parameters are 64-bit words."""
        values = [ctypes.c_uint64(word) for word in words]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])

        def queue() -> None:
            place = ctypes.addressof(pointers) if values else 0
            ask(cu.cuLaunchKernel, function, *grid, *block, smem_bytes, self.stream, place, 0)

        return queue

    def _between_notes(self, steps: Sequence[tuple[Sequence[Action], Sequence[Action]]], number: int) -> _Replay:
        """Of each step the first is done and the second timed."""
        place = self.notes + number * NOTES_BYTES

        def note(index: int) -> Action:
            return self._own(self.time, (1, 1, 1), (1, 1, 1), 0, place + CLOCK_BYTES + 8 * index)

        def clocks(offset: int) -> Action:
            return self._own(self.clock, (2 * self.multiprocessors, 1, 1), (32, 1, 1), 0, place + offset)

        actions = [clocks(0)]
        for index, (before, timed) in enumerate(steps):
            actions += [*before, note(2 * index), *timed, note(2 * index + 1)]
        actions.append(clocks(CLOCK_BYTES // 2))
        graph = self._captured(actions)
        self.releases.append(lambda: ask(cu.cuGraphDestroy, graph))
        return _Replay(graph, number, len(steps), max((len(timed) for _, timed in steps), default=1))

    def _captured(self, actions: Sequence[Action]) -> Any:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        ask(cu.cuStreamBeginCapture, self.stream, mode)
        try:
            for action in actions:
                action()
        finally:
            graph = ask(cu.cuStreamEndCapture, self.stream)
        return graph

    def instantiated(self, graph: Any) -> Any:
        executable = ask(cu.cuGraphInstantiate, graph, 0)
        self.releases.append(lambda: ask(cu.cuGraphExecDestroy, executable))
        # Else its first replay, which may be a timed one, would bring it to the card.
        ask(cu.cuGraphUpload, executable, self.stream)
        return executable

    def _program_replay(self, run: Run, indices: Sequence[int], cold: bool, number: int = 0) -> _Replay:
        """Single launches on these sets."""
        steps = [(self._lead_in(cold, run.copy, [index]), [self._launch(run, index)]) for index in indices]
        return self._between_notes(steps, number)

    def _row_replay(self, run: Run, indices: Sequence[int], cold: bool, number: int = 0) -> _Replay:
        """Launches on these sets in a row."""
        row = [self._launch(run, index) for index in indices]
        return self._between_notes([(self._lead_in(cold, run.copy, indices), row)], number)

    def _empty_replay(self, indices: Sequence[int], cold: bool, number: int = 0, own_shape: bool = False) -> _Replay:
        """As of a program, with an empty kernel in place of the launch: of one block, or of the launch's own shape."""
        empty = self._empty(own_shape)
        return self._between_notes([(self._lead_in(cold, 0, [index]), [empty]) for index in indices], number)

    def _empty(self, own_shape: bool = False) -> Action:
        shape: tuple[Any, ...] = (self.grid, self.block, self.smem_bytes) if own_shape else ((1, 1, 1), (32, 1, 1), 0)
        return self._own(self.empty, *shape)

    def _clear_notes(self) -> None:
        ask(cu.cuMemsetD8Async, self.notes, 0, MOST_REPLAYS * NOTES_BYTES, self.stream)

    def _read_notes(self) -> "list[Notes]":
        """What the replays of a block noted, by their numbers."""
        raw = np.empty(MOST_REPLAYS * NOTES_BYTES, np.uint8)
        self.driver.download(raw, self.notes)
        return [Notes(raw[start : start + NOTES_BYTES]) for start in range(0, raw.size, NOTES_BYTES)]

    # Measuring

    def _event(self) -> Any:
        event = ask(cu.cuEventCreate, 0)
        self.releases.append(lambda: ask(cu.cuEventDestroy, event))
        return event

    def _finish(self, expected_us: float = 0.0) -> None:
        """Wait until the card has done what is queued, which should take about `expected_us`."""
        began = time.monotonic()
        deadline = began + float(self.params["deadline_s"]) + 2e-6 * expected_us
        while int(status := cu.cuStreamQuery(self.stream)[0]) == int(cu.CUresult.CUDA_ERROR_NOT_READY):
            if time.monotonic() > deadline:
                self.lost = True
                raise TimeoutError("the timed launches did not end")
            self.job.check()
            # A short replay is not slept through: the card would idle as long.
            if expected_us > 5_000 or time.monotonic() - began > 0.005:
                time.sleep(0.0002)
        if int(status) != 0:
            raise DriverError(int(status), "the timed launches")

    def _play_singly(self, actions: Sequence[Action]) -> None:
        """Without a graph: code is brought to the card at a kernel's first launch, which must not happen in a capture."""
        for action in actions:
            action()
        self._finish()

    def _play(self, replay: _Replay) -> None:
        key = int(replay.graph)
        if key not in self.executables:
            self.executables[key] = self.instantiated(replay.graph)
        ask(cu.cuGraphLaunch, self.executables[key], self.stream)

    def _played_us(self, replay: _Replay, expected_us: float = 0.0) -> list[float]:
        self._play(replay)
        self._finish(expected_us)
        return replay.times_us(self._read_notes())

    def _estimate_us(self, program: int, sets: int, cold: bool) -> float:
        """Time of one launch, good enough to plan with."""
        run = Run(program, program, 0)
        self._play_singly([*self._lead_in(cold, run.copy, [0]), self._launch(run, 0)])
        first = self._played_us(self._program_replay(run, [0], cold))[0]
        if first > 500:
            return first
        return min(first, *self._played_us(self._program_replay(run, [index % sets for index in range(4)], cold)))

    def _around_us(self, actions: Sequence[Action], replays: int = 5) -> float:
        """How long the card takes for a graph of the actions, the median of some replays."""
        graph = self._captured(actions)
        executable = self.instantiated(graph)
        ask(cu.cuGraphDestroy, graph)
        start, end = self._event(), self._event()
        taken = []
        for _ in range(replays):
            ask(cu.cuEventRecord, start, self.stream)
            ask(cu.cuGraphLaunch, executable, self.stream)
            ask(cu.cuEventRecord, end, self.stream)
            self._finish()
            taken.append(_elapsed_us((start, end)))
        return sorted(taken)[replays // 2]

    def _empty_row_us(self) -> tuple[float, float]:
        """What one more empty kernel of one block costs in a row, and what the notes around any row add."""
        short, long = (self._between_notes([([], [self._empty()] * count)], 0) for count in (512, 1024))
        short_us, long_us = (
            replay.in_row * float(np.median([self._played_us(replay) for _ in range(7)])) for replay in (short, long)
        )
        return (long_us - short_us) / 512, 2 * short_us - long_us

    def _prepare_own(self, cold: bool) -> None:
        """Buffers of our own kernels, and their first launches."""
        self.swept = self._allocate(SWEEP_FACTOR * self.l2_bytes) if cold else 0
        if cold:
            ask(cu.cuMemsetD8Async, self.swept, 0, SWEEP_FACTOR * self.l2_bytes, self.stream)
        # Where the notes lie differs each time and is a small part of much, so that no kernel can find and change them
        # in the time that it could gain.
        room = (NOTES_ROOM - MOST_REPLAYS * NOTES_BYTES) // 256
        self.notes = self._allocate(NOTES_ROOM) + 256 * secrets.randbelow(room)
        once: list[Action] = [self._over(self.filling, self.notes, 16)]
        once.append(self._over(self.copying, self.notes, 16, self.notes + 16))
        once += [self._own(function, (1, 1, 1), (1, 1, 1), 0, self.notes) for function in (self.time, self.clock)]
        self._play_singly([*once, self._own(self.empty, (1, 1, 1), (32, 1, 1), 0), *self._cool_cache(cold)])

    def _measure(self, monitor: Monitor) -> Any:
        if (unloadable := self._load()) is not None:
            return unloadable
        in_row, singly, cold = self._sets()
        self._prepare_own(cold)
        # Another set, so that there is one that a load of the code has not seen, even where one is timed.
        held = max(min(2, self._room()), in_row, singly)
        self._fill(held)
        estimates = [self._estimate_us(program, singly, cold) for program in range(len(self.programs))]
        if max(estimates) > SLOWEST_US:
            return {"declined": f"one launch takes {max(estimates) / 1e6:.1f} s, too long to time again and again"}
        # A single hot launch would find the cache full of the poison that was just written.
        rows = bool(in_row) and (min(estimates) < SINGLE_US or not cold)
        sets = in_row if rows else singly
        lead_us = 0.0 if rows else self._around_us(self._lead_in(cold, 0, [0]) * 4) / 4
        most = MOST_IN_ROW if rows else self._most_launches(cold)
        restored = any(buffer.role in RESTORED and buffer.nbytes for buffer in self.buffers)
        costs = Costs(min(estimates), max(estimates), lead_us)
        plan = plan_samples(sets, costs, len(self.programs), {**self.params, "most_launches": most}, rows and restored)
        for run in plan.order:
            if run.code > 0:
                self._play_singly([*self._lead_in(cold, run.copy, [0]), self._launch(run, 0)])
        floor_us, noting_us = self._empty_row_us()
        answer = self._blocks(plan, costs, rows, cold, held, monitor)
        singles, suspicious = answer.pop("single_us"), answer.pop("suspicious")
        answer |= {
            "method": "graph" if rows else "single",
            "floor_us": floor_us,
            "overhead_us": noting_us / len(plan.chunks[0]) if rows else float(np.median(singles)) - floor_us,
            "cold": cold,
            "sets": sets,
            "launches": len(plan.chunks[0]),
            "chunks": len(plan.chunks),
            "busy": monitor.busy_since_start(),
            "outputs": self._collect(plan),
            "hot_us": self._hot(estimates[0], noting_us) if cold and self.params["hot"] and not restored else [],
        }
        look = held > 1 and (suspicious or estimates[0] < CLOSER_LOOK_US)
        answer["remembered_us"] = self._remembered(cold) if look else None
        return answer

    def _blocks(
        self, plan: "Plan", costs: "Costs", rows: bool, cold: bool, held: int, monitor: Monitor
    ) -> dict[str, Any]:
        """Play all blocks and give what was measured, one figure of each kind per block."""
        replay_us = len(plan.chunks[0]) * (costs.slowest_us + costs.lead_us)
        replays = self._replays(plan, rows, cold)
        gap_count = max(16, min(len(plan.chunks[0]), 1024))
        shaped = self._between_notes([(self._cool_cache(cold), [self._empty(own_shape=True)] * gap_count)], MOST_RUNS)
        empties = [
            [
                shaped if rows else self._empty_replay(chunk, cold, MOST_RUNS + half)
                for chunk in plan.chunks
            ]
            for half in range(len(plan.halves))
        ]  # fmt: skip
        gaps = [self._played_us(shaped)[0] for _ in range(5)]
        self._warm_up([replays[run][0] for run in plan.order], replay_us)
        samples: list[list[float]] = [[] for _ in self.programs]
        speeds: list[list[float | None]] = [[] for _ in self.programs]
        singles: list[float] = []
        batches: list[dict[str, Any]] = []
        fresh = FreshLaunches()
        pause = Pauses()
        for done in range(plan.samples):
            if done == plan.exchange_at:
                self._exchange(held)
                replays = self._replays(plan, rows, cold)
            chunk = plan.chunk_of(done)
            self._clear_notes()
            for half, empty in zip(plan.halves, empties, strict=True):
                for replay in (empty[chunk], *(replays[run][chunk] for run in half)):
                    if replay_us > LONG_WAIT_US:
                        self._finish(replay_us)
                    self._play(replay)
            # Read while the card works: between blocks the clock may already fall.
            reading = monitor.reading()
            self._finish(replay_us * (len(plan.order) + len(plan.halves)))
            notes = self._read_notes()
            times = {run: replays[run][chunk].times_us(notes) for run in plan.order}
            clocks = {run: notes[number].clock_mhz() for number, run in enumerate(plan.order)}
            for program in range(len(self.programs)):
                runs = [run for run in plan.order if run.program == program]
                samples[program].append(_mean([_mean(times[run]) for run in runs]))
                known = [clock for run in runs if (clock := clocks[run]) is not None]
                speeds[program].append(_mean(known) if len(known) == len(runs) else None)
            singles.append(_mean([_mean(empty[chunk].times_us(notes)) for empty in empties]))
            for run in plan.order:
                if run.program == 0 and not rows:
                    fresh.add(run.code, plan.chunks[chunk], times[run], done >= plan.exchange_at)
            batches.append({"count": 1, **reading})
            if done % 6 == 5 or done + 1 == plan.samples:
                self.job.emit("timed", {"done": done + 1, "of": plan.samples})
            pause.after(reading, speeds[0][-1], replay_us * len(plan.order))
        return {
            "samples_us": samples,
            "speeds_mhz": speeds,
            "single_us": singles,
            "gap_us": gaps,
            "batches": batches,
            "pauses": pause.count,
            "suspicious": fresh.suspicious,
        }

    def _replays(self, plan: "Plan", rows: bool, cold: bool) -> dict[Run, list[_Replay]]:
        make = self._row_replay if rows else self._program_replay
        return {run: [make(run, chunk, cold, number) for chunk in plan.chunks] for number, run in enumerate(plan.order)}

    def _exchange(self, held: int) -> None:
        if self.seeds > 1:
            self.exchanged = True
            self._bring_inputs(held)

    def _most_launches(self, cold: bool) -> int:
        return max(1, min(MOST_LAUNCHES, MOST_KERNELS // (len(self._lead_in(cold, 0, [0])) + 3)))

    def _hot(self, estimate_us: float, noting_us: float) -> list[float]:
        """Times of the first program with its data in the cache: again and again on one set, in a row."""
        count = max(2, min(MOST_IN_ROW, math.ceil(float(self.params["target_us"]) / estimate_us)))
        replay = self._row_replay(Run(0, 0, 0), [0] * count, cold=False)
        # The first replay still finds what something else has left.
        return [self._played_us(replay, estimate_us * count)[0] - noting_us / count for _ in range(8)][1:]

    def _remembered(self, cold: bool) -> list[float] | None:
        """Times of a launch on numbers that a load of the code never saw, and of the next on the same, if they tell a memory.

        What the program keeps goes with its code, so it is loaded anew. A launch on other numbers comes first: what any
        first launch has to fetch is not held against it. Before the second one outputs and scratch are not wiped, as they
        are not in a row: what was kept there counts, too.
        """
        first, again = [], []
        own = self.programs[0]
        for _ in range(FRESH_LOADS):
            own.append(self._load_once(0))
            run = Run(0, 0, len(own) - 1)
            self._play_singly([*self._lead_in(cold, 0, [0]), self._launch(run, 0)])
            pair = [(self._lead_in(cold, 0, [1], wipe), [self._launch(run, 1)]) for wipe in (True, False)]
            unknown, known = self._played_us(self._between_notes(pair, 0))
            first.append(unknown)
            again.append(known)
        unknown, known = float(np.median(first)), float(np.median(again))
        return [unknown, known] if is_remembered(unknown, known) else None

    def _warm_up(self, replays: Sequence[_Replay], replay_us: float) -> None:
        """Keep the card busy for about 50 ms: an idle card needs that long to reach its working clock.

        Slow kernels have done so while their time was estimated.
        """
        for _ in range(min(200, int(50_000 / (replay_us * len(replays))))):
            for replay in replays:
                self._play(replay)
        self._finish(100_000 + replay_us * len(replays))

    # Outputs of the timed runs

    def _collect(self, plan: "Plan") -> list[dict[str, Any]]:
        """Put what the last replays wrote into the arena: once for each program and seed, and every set that differs.

        Sets of one seed have equal inputs, so a deterministic kernel gives equal outputs and one copy is enough.
        """
        offset = int(self.params["outputs_offset"])
        room = int(self.params["arena_bytes"])
        arena = self.card.arena
        kept: list[dict[str, Any]] = []
        # Only sets that were replayed since the exchange hold outputs of what they hold now.
        steps = range(plan.exchange_at, plan.samples)
        written = sorted({index for step in steps for index in plan.chunks[plan.chunk_of(step)]})
        outputs = [buffer for buffer in self.buffers if buffer.role in ("out", "io") and buffer.nbytes]
        per_set = sum(buffer.nbytes for buffer in outputs) * int(self.params["checked_programs"])
        stride = max(1, -(-len(written) * per_set // CHECKED_BYTES))
        written = written[::stride]
        scratch = np.empty(max((buffer.nbytes for buffer in outputs), default=0), np.uint8)
        for program in range(int(self.params["checked_programs"])):
            # The last to write on copy p was program p, see `block_halves`.
            first: dict[tuple[str, int], Bytes] = {}
            for index in written:
                seed = self.seed_of(index)
                for buffer in outputs:
                    data = scratch[: buffer.nbytes]
                    self.driver.download(data, buffer.address(program, index))
                    key = (buffer.name, seed)
                    if (key in first and np.array_equal(first[key], data)) or offset + buffer.nbytes > room:
                        continue
                    place = arena[offset : offset + buffer.nbytes]
                    place[:] = data
                    first.setdefault(key, place)
                    kept.append(
                        {"program": program, "buffer": buffer.name, "seed": seed, "set": index, "offset": offset}
                    )
                    offset += -(-buffer.nbytes // 64) * 64
        return kept


def seed_of_set(index: int, seeds: int, exchanged: bool) -> int:
    """Which inputs a set holds: all but the last in turn, and after the exchange others, the last among them.

    With one alone there is nothing to exchange; of two, the first stays on every other set.
    """
    known = max(1, seeds - 1)
    if not exchanged:
        return index % known
    return known if index % seeds == 0 else (index + 1) % known


def is_remembered(unknown_us: float, known_us: float) -> bool:
    return unknown_us > REMEMBERED * known_us and unknown_us - known_us > REMEMBERED_US


@frozen(eq=False)
class Notes:
    """What a replay noted: bytes as `_Replay` lays them out, with zeros where nothing was noted."""

    raw: Bytes

    def times_us(self, count: int) -> list[float]:
        """Between the two notes of each launch."""
        pairs = self.raw[CLOCK_BYTES : CLOCK_BYTES + 16 * count].view(np.int64).reshape(count, 2)
        return [float(time_ns) / 1000 for time_ns in pairs[:, 1] - pairs[:, 0]]

    def clock_mhz(self) -> float | None:
        """The clock in between, the median over the multiprocessors that noted it at both ends.

        None for none, or for an interval too short to tell.
        """
        before, after = self.raw[:CLOCK_BYTES].view(np.int64).reshape(2, CLOCK_SLOTS, 2)
        seen = (before[:, 0] > 0) & (after[:, 0] - before[:, 0] > 20_000) & (after[:, 1] > before[:, 1])
        if not seen.any():
            return None
        spans = (after - before)[seen]
        return float(np.median(spans[:, 1] / spans[:, 0] * 1e3))


class FreshLaunches:
    """The first launch of each load of program 0 on each set since the exchange, beside all others."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, int], float] = {}
        self._others: list[float] = []

    def add(self, code: int, indices: Sequence[int], times_us: Sequence[float], exchanged: bool) -> None:
        for index, time_us in zip(indices, times_us, strict=True):
            if exchanged and (code, index) not in self._first:
                self._first[code, index] = time_us
            else:
                self._others.append(time_us)

    @property
    def suspicious(self) -> bool:
        """One that took long is enough to look closer: an answer that is kept for its numbers is computed only once."""
        return bool(self._first and self._others) and is_remembered(
            max(self._first.values()), float(np.median(self._others))
        )


class Pauses:
    """Lets a card cool that runs into its power cap or slows down, a second in all at most."""

    def __init__(self) -> None:
        self.count = 0
        self._left_s = MOST_PAUSES_S
        self._fastest_mhz = 0.0

    def after(self, reading: Mapping[str, Any], clock_mhz: float | None, block_us: float) -> float:
        """Called after every block; returns how long it slept, in seconds."""
        self._fastest_mhz = max(self._fastest_mhz, clock_mhz or 0.0)
        capped = bool((reading.get("throttle") or 0) & POWER_CAP_BIT)
        fallen = clock_mhz is not None and clock_mhz < FALLEN_CLOCK * self._fastest_mhz
        seconds = min(0.1, 3e-6 * block_us, self._left_s)
        if not (capped or fallen) or seconds <= 0.0:
            return 0.0
        self.count += 1
        self._left_s -= seconds
        time.sleep(seconds)
        return seconds


@frozen
class Costs:
    """Microseconds: a launch of the faster and of the slower program, and what leads one in."""

    fastest_us: float
    slowest_us: float
    lead_us: float


@frozen
class Plan:
    """`chunks[i % len(chunks)]` are the sets that each replay of sample i launches, in order."""

    chunks: tuple[tuple[int, ...], ...]
    samples: int
    halves: tuple[tuple[Run, ...], ...]

    @property
    def order(self) -> list[Run]:
        return [run for half in self.halves for run in half]

    @property
    def exchange_at(self) -> int:
        """The sample before which the inputs are exchanged: the last sixth is measured after it."""
        return self.samples - max(1, self.samples // 6)

    def chunk_of(self, sample: int) -> int:
        """After the exchange they begin anew: the first one holds numbers that were not there before."""
        return (sample - self.exchange_at if sample >= self.exchange_at else sample) % len(self.chunks)


def plan_samples(sets: int, costs: Costs, programs: int, params: Mapping[str, Any], once: bool = False) -> Plan:
    """How many launches make a replay, which sets each launches, and how many samples.

    A replay should last about `target_us`, what leads the launches in included, or half of it where a sample is the mean
    of four. Launches come in whole rounds of the sets, or a round is cut into chunks that samples take in turn.
    Blocks are full while half of `least_samples` of them fit into `budget_s`: such a block has four times a single
    sample's replays.
    """
    target_us = float(params["target_us"])
    share_us = target_us if programs == 1 else target_us / 2
    launches = max(1, min(int(params["most_launches"]), math.ceil(share_us / (costs.fastest_us + costs.lead_us))))
    launch_us = costs.slowest_us + costs.lead_us
    if launches >= sets or sets * launch_us <= 5 * target_us:
        rounds = -(-launches // sets)
        if once or rounds * sets > int(params["most_launches"]):
            rounds = 1 if once else max(1, launches // sets)
        chunks = [tuple(range(sets)) * rounds]
    else:
        chunks = [tuple(range(start, min(sets, start + launches))) for start in range(0, sets, launches)]
        if len(chunks[-1]) < launches:
            # Samples of one size only, so that their fixed costs weigh the same: the last chunk takes from the front.
            chunks[-1] = tuple(range(sets - launches, sets))
    replay_us = len(chunks[0]) * launch_us
    empty_us = len(chunks[0]) * costs.lead_us

    def affordable(budget: str, halves: Sequence[Sequence[Run]]) -> int:
        block_us = sum(len(half) * replay_us + empty_us for half in halves)
        return int(float(params[budget]) * 1e6 / block_us)

    halves, least, fewest = block_halves(programs), int(params["least_samples"]), 5
    if programs > 1:
        least = -(-least // 2)
        if affordable("budget_s", halves) < least:
            halves, fewest = block_halves(programs, short=True), 3
    samples = max(affordable("budget_s", halves), min(affordable("most_budget_s", halves), least))
    return Plan(tuple(chunks), max(fewest, min(int(params["most_samples"]), samples)), halves)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _elapsed_us(pair: Any) -> float:
    return float(ask(cu.cuEventElapsedTime, pair[0], pair[1])) * 1000
