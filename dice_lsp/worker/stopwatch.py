"""The stopwatch of the runner child: graphs of launches over rotated buffers, replayed and timed with events."""

import math
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
    error_name,
)
from dice_lsp.worker.monitor import Monitor

OUTPUT_POISON = 0xFF
EVENTS_US = 2.3
"""About what two events add around a graph (H200): for sizing and the hot figure, the cold one is corrected by its own."""
SLOWEST_US = 2e6
RESTORED_SAMPLE_US = 300.0
"""How long a sample with restored buffers should be: each launch of it needs buffers of its own."""
CHECKED_BYTES = 512 << 20
"""How much of what the timed runs wrote is read back; of more, evenly spaced sets are."""
EMPTY_SHARE = 0.5
"""About what the graph of empty kernels takes of the time of a replay, for sizing."""
LONG_WAIT_US = 1e6
"""Work that takes longer is not queued in one go, so that a cancel need not wait for it."""

EMPTY_PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry dice_empty()
{
    ret;
}
\0"""
"""A kernel that does nothing: the driver compiles it, so it fits every architecture."""
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


_SECOND_HALF = (Run(1, 0, 0), Run(0, 1, 0), Run(0, 0, 1), Run(1, 1, 1))


def block_halves(programs: int, short: bool = False) -> tuple[tuple[Run, ...], ...]:
    """The replays of one block, in order; a graph of empty kernels runs before each half.

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
    """Times one or two programs and an empty kernel of the same launch shape, interleaved, on rotated buffers.

    Cold: there are R sets of buffers, together at least `l2_factor` times the L2, used in turn, so that a launch finds
    nothing of its data in the cache. A replay is that of a CUDA graph of K launches, K a multiple of R; where
    all R launches would take too long for one replay, each sample replays the next K of them. Hot: R = 1.

    A sample of one program is one replay. A sample of two is a block of eight (`block_halves`), and what is kept of
    each program is the mean of its four. That is because a program's time depends on more than its code: a buffer's
    physical pages decide which memory channels a strided access meets, so that the very same code was 1.5 % slower on
    one copy of its output than on another; and the first to run after the empty kernels meets another card than the
    second. Were each program to keep its own copy and its own place, that would be told as a difference of the
    programs. Inputs exist once, both programs read the same addresses, so their place favours neither.

    Buffers that a kernel reads and writes are restored before each replay, outside the timed events; then K = R, so a
    set is used once per replay. Outputs are poisoned before every batch of samples. In the last batch a copy is
    poisoned again before its last replay in each half, because the other program has written there: what is handed
    back of program 0 was written by program 0 while it was timed.
    """

    BATCH = 6

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
        self.releases: list[Callable[[], None]] = []
        self.programs: list[list[Function]] = []
        """Each program as often as its code is loaded."""
        self.buffers: list[_Buffer] = []
        self.seeds = int(params["seeds"])
        self.has_io = any(a.get("role") in RESTORED and a["nbytes"] for a in params["arguments"])
        self.lost = False

    # Setting up

    def measure(self, idle_s: float) -> Any:
        monitor = Monitor(self.card.bus_id)
        busy = monitor.busy_reason(idle_s)
        if busy is not None:
            return {"declined": busy}
        try:
            return self._measure(monitor)
        finally:
            self._release()

    def _release(self) -> None:
        if not self.lost and int(cu.cuCtxSynchronize()[0]) == 0:
            for release in reversed(self.releases):
                release()

    def _allocate(self, nbytes: int) -> int:
        address = self.driver.allocate(nbytes)
        self.releases.append(lambda: self.driver.free(address))
        return address

    def _load(self) -> dict[str, Any] | None:
        """Load the code, of two programs in the order 0110; an answer if that of a program does not load here."""
        count = len(self.params["programs"])
        self.programs = [[] for _ in range(count)]
        for number in (*range(count), *(reversed(range(count)) if count > 1 else ())):
            program = self.params["programs"][number]
            try:
                loaded = self.driver.load(self.card.cubin(program), program["symbol"], self.smem_bytes)
            except DriverError as error:
                if error.code in UNLOADABLE or error.code == NOT_FOUND:
                    return {"unloadable": {"program": number, "reason": error_name(error.code)}}
                raise
            self.programs[number].append(loaded)
        module = ask(cu.cuModuleLoadData, EMPTY_PTX)
        self.empty = ask(cu.cuModuleGetFunction, module, b"dice_empty")
        allow_dynamic_smem(self.empty, self.smem_bytes)
        # Code is loaded at its first launch, which must not happen while a graph is captured.
        ask(cu.cuLaunchKernel, self.empty, 1, 1, 1, 1, 1, 1, 0, self.stream, 0, 0)
        return None

    def _sets(self) -> tuple[int, bool]:
        """How many rotated sets, and whether that makes the runs cold."""
        pointers = [a for a in self.params["arguments"] if "data" not in a]
        set_bytes = sum(a["nbytes"] for a in pointers)
        if not set_bytes:
            return 1, False
        wanted = int(self.params["l2_factor"]) * self.l2_bytes
        sets = 1 if set_bytes >= wanted else -(-wanted // set_bytes) + 1
        programs = len(self.params["programs"])
        footprint = sum(a["nbytes"] * (1 if a["role"] == "in" else programs) for a in pointers)
        free_bytes, _ = ask(cu.cuMemGetInfo)
        most = max(1, min(int(self.params["most_sets"]), int(free_bytes) // 2 // footprint))
        cold = bool(self.params["cold"]) and sets <= most
        if not cold:
            sets, most = 1, max(1, min(most, self.l2_bytes // 2 // set_bytes))
        if self.has_io:
            # A set is used once per sample then, so more sets make the sample long enough to be timed well.
            fastest_us = 1.0 + set_bytes / float(self.params["peak_bytes_per_us"])
            sets = min(most, max(sets, math.ceil(RESTORED_SAMPLE_US / fastest_us)))
        return sets, cold

    def _fill(self, sets: int) -> None:
        arena = self.card.arena
        for argument in self.params["arguments"]:
            if "data" in argument:
                continue
            nbytes, role = int(argument["nbytes"]), argument["role"]
            stride = -(-max(1, nbytes) // 256) * 256
            copies = 1 if role == "in" else len(self.programs)
            slabs = [self._allocate(stride * sets) for _ in range(copies)]
            buffer = _Buffer(argument["name"], role, nbytes, stride, argument["offsets"], slabs, [])
            self.buffers.append(buffer)
            if not nbytes:
                continue
            for seed in range(min(len(buffer.offsets), sets)):
                data = arena[buffer.offsets[seed] : buffer.offsets[seed] + nbytes]
                if role in RESTORED:
                    buffer.pristine.append(self._allocate(nbytes))
                    self.driver.upload(buffer.pristine[-1], data)
                elif role == "in":
                    self.driver.upload(buffer.address(0, seed), data)
        # Copies from plain memory may still be under way when they return, on no stream of ours.
        ask(cu.cuCtxSynchronize)
        for buffer in self.buffers:
            if buffer.role == "in" and buffer.nbytes:
                for index in range(self.seeds, sets):
                    source = buffer.address(0, index % self.seeds)
                    ask(cu.cuMemcpyDtoDAsync, buffer.address(0, index), source, buffer.nbytes, self.stream)

    def _arguments(self, copy: int, index: int) -> list["int | bytes"]:
        buffers = iter(self.buffers)
        seed = index % self.seeds
        return [
            bytes.fromhex(a["data"][seed]) if "data" in a else next(buffers).address(copy, index)
            for a in self.params["arguments"]
        ]

    def _restore(self, copy: int, indices: Sequence[int]) -> None:
        for buffer in self.buffers:
            if buffer.role in RESTORED and buffer.nbytes:
                for index in indices:
                    source = buffer.pristine[index % self.seeds]
                    ask(cu.cuMemcpyDtoDAsync, buffer.address(copy, index), source, buffer.nbytes, self.stream)

    def _poison(self, copies: Sequence[int], indices: Sequence[int]) -> None:
        """Fill the sets from the lowest to the highest index with poison."""
        first, count = min(indices), max(indices) - min(indices) + 1
        for buffer in self.buffers:
            if buffer.role in POISONED and buffer.nbytes:
                for copy in copies:
                    address, nbytes = buffer.address(copy, first), buffer.stride * count
                    ask(cu.cuMemsetD8Async, address, OUTPUT_POISON, nbytes, self.stream)

    def _launch(self, run: Run, index: int) -> None:
        function = self.programs[run.program][run.code]
        self.driver.launch(function, self.grid, self.block, self.smem_bytes, self._arguments(run.copy, index))

    def _graph(self, queue: Callable[[], None]) -> Any:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        ask(cu.cuStreamBeginCapture, self.stream, mode)
        try:
            queue()
        finally:
            graph = ask(cu.cuStreamEndCapture, self.stream)
        executable = ask(cu.cuGraphInstantiate, graph, 0)
        ask(cu.cuGraphDestroy, graph)
        self.releases.append(lambda: ask(cu.cuGraphExecDestroy, executable))
        # Else the first replay of each graph, which may be a timed one, would bring it to the card.
        ask(cu.cuGraphUpload, executable, self.stream)
        return executable

    def _program_graph(self, run: Run, indices: Sequence[int]) -> Any:
        def queue() -> None:
            for index in indices:
                self._launch(run, index)

        return self._graph(queue)

    def _empty_graph(self, count: int, grid: Dim3, block: Dim3, smem_bytes: int) -> Any:
        def queue() -> None:
            for _ in range(count):
                ask(cu.cuLaunchKernel, self.empty, *grid, *block, smem_bytes, self.stream, 0, 0)

        return self._graph(queue)

    # Measuring

    def _event(self) -> Any:
        event = ask(cu.cuEventCreate, 0)
        self.releases.append(lambda: ask(cu.cuEventDestroy, event))
        return event

    def _finish(self, expected_us: float = 0.0) -> None:
        """Wait until the card has done what is queued, which should take about `expected_us`."""
        deadline = time.monotonic() + float(self.params["deadline_s"]) + 2e-6 * expected_us
        while int(status := cu.cuStreamQuery(self.stream)[0]) == int(cu.CUresult.CUDA_ERROR_NOT_READY):
            if time.monotonic() > deadline:
                self.lost = True
                raise TimeoutError("the timed launches did not end")
            self.job.check()
            time.sleep(0.0002)
        if int(status) != 0:
            raise DriverError(int(status), "the timed launches")

    def _estimate_us(self, program: int, sets: int) -> float:
        """Time of one launch, good enough to size the graphs with.

        A short graph tells it: plain launches of a short kernel would measure how fast this process queues them.
        """
        run = Run(program, program, 0)
        self._restore(run.copy, [0])
        pair = self._event(), self._event()
        ask(cu.cuEventRecord, pair[0], self.stream)
        self._launch(run, 0)
        ask(cu.cuEventRecord, pair[1], self.stream)
        self._finish()
        single_us = _elapsed_us(pair)
        if single_us > 500:
            return single_us
        # Restored buffers allow one launch each: a second one could find indices of the first in them.
        indices = [index % sets for index in range(min(sets, 20) if self.has_io else 20)]
        graph = self._program_graph(run, indices)
        replays = []
        for _ in range(3):
            self._restore(run.copy, indices)
            pair = self._timed(graph, pair)
            self._finish()
            replays.append(_elapsed_us(pair))
        return max(0.3, (min(replays) - EVENTS_US) / len(indices))

    def _measure(self, monitor: "Monitor") -> Any:
        if (unloadable := self._load()) is not None:
            return unloadable
        sets, cold = self._sets()
        self._fill(sets)
        copies = range(len(self.programs))
        self._poison(copies, range(sets))
        self._finish()
        estimates = [self._estimate_us(program, sets) for program in range(len(self.programs))]
        estimate = min(estimates)
        if max(estimates) > SLOWEST_US:
            return {"declined": f"one launch takes {max(estimates) / 1e6:.1f} s, too long to time again and again"}
        plan = plan_samples(sets, estimate, max(estimates), self.has_io, len(self.programs), self.params)
        order = [run for half in plan.halves for run in half]
        # Code is loaded at its first launch, which must not happen while a graph is captured.
        for run in sorted((run for run in order if run.code > 0), key=lambda run: -run.program):
            self._restore(run.copy, [0])
            self._launch(run, 0)
        self._finish(max(estimates) * len(order))
        graphs = {run: [self._program_graph(run, indices) for indices in plan.chunks] for run in order}
        per_sample = len(plan.chunks[0])
        gap_count = max(16, min(per_sample, 1024))
        empty = self._empty_graph(gap_count, self.grid, self.block, self.smem_bytes)
        floors = [self._empty_graph(count, (1, 1, 1), (32, 1, 1), 0) for count in (512, 1024)]
        # Chunks are few launches: what restoring, or the program before on the same chunk, left in the cache would count.
        chunked = len(plan.chunks) > 1 and (self.has_io or len(self.programs) > 1)
        flush = self._allocate(2 * self.l2_bytes) if cold and chunked else None
        replay_us = max(estimates) * per_sample
        block_us = replay_us * (len(order) + EMPTY_SHARE * len(plan.halves))
        self._warm_up(graphs, order, plan, estimate * per_sample)
        batch = max(1, min(self.BATCH, int(LONG_WAIT_US / block_us)))

        events: dict[Any, Any] = {}
        samples: list[list[float]] = [[] for _ in self.programs]
        gaps: list[float] = []
        batches: list[dict[str, Any]] = []
        done = 0
        while done < plan.samples:
            count = min(batch, plan.samples - done)
            last = done + count == plan.samples
            self._poison(copies, range(sets))
            for step in range(count):
                chunk = (done + step) % len(plan.chunks)
                for number, half in enumerate(plan.halves):
                    events[step, number] = self._timed(empty, events.get((step, number)))
                    for place, run in enumerate(half):
                        if last and len(half) > 1 and all(later.copy != run.copy for later in half[place + 1 :]):
                            self._poison([run.copy], plan.chunks[chunk])
                        self._restore(run.copy, plan.chunks[chunk])
                        if flush is not None:
                            ask(cu.cuMemsetD8Async, flush, step, 2 * self.l2_bytes, self.stream)
                        key = (step, number, place)
                        events[key] = self._timed(graphs[run][chunk], events.get(key))
                        if block_us > LONG_WAIT_US:
                            self._finish(replay_us)
            # Read while the card works: between batches the clock may already fall.
            reading = monitor.reading()
            self._finish(block_us * count)
            for step in range(count):
                launches = len(plan.chunks[(done + step) % len(plan.chunks)])
                replays: list[list[float]] = [[] for _ in self.programs]
                for number, half in enumerate(plan.halves):
                    for place, run in enumerate(half):
                        replays[run.program].append(_elapsed_us(events[step, number, place]) / launches)
                for column, times in zip(samples, replays, strict=True):
                    column.append(sum(times) / len(times))
                empties = [_elapsed_us(events[step, number]) / gap_count for number in range(len(plan.halves))]
                gaps.append(sum(empties) / len(empties))
            batches.append({"count": count, **reading})
            done += count
            self.job.emit("timed", {"done": done, "of": plan.samples})
        outputs = self._collect(plan, done, batches[-1]["count"])
        short_us, long_us = (self._median_us(graph, 7) for graph in floors)
        return {
            "samples_us": samples,
            "gap_us": gaps,
            "floor_us": (long_us - short_us) / 512,
            # What a pair of events adds around a graph: the part that does not grow with the number of launches.
            "overhead_us": 2 * short_us - long_us,
            "batches": batches,
            "cold": cold,
            "sets": sets,
            "launches": per_sample,
            "chunks": len(plan.chunks),
            "busy": monitor.busy_since_start(),
            "outputs": outputs,
            "hot_us": self._hot(estimates[0]) if cold and self.params["hot"] and not self.has_io else [],
        }

    def _hot(self, estimate_us: float) -> list[float]:
        """Times per launch of the first program with its data in the cache: again and again on one set."""
        count = max(1, min(int(self.params["most_launches"]), math.ceil(float(self.params["target_us"]) / estimate_us)))
        graph = self._program_graph(Run(0, 0, 0), [0] * count)
        pairs = [self._timed(graph, None) for _ in range(8)]
        self._finish()
        # The first replay is still partly cold.
        return [(_elapsed_us(pair) - EVENTS_US) / count for pair in pairs[1:]]

    def _timed(self, graph: Any, pair: Any) -> Any:
        start, end = pair or (self._event(), self._event())
        ask(cu.cuEventRecord, start, self.stream)
        ask(cu.cuGraphLaunch, graph, self.stream)
        ask(cu.cuEventRecord, end, self.stream)
        return start, end

    def _median_us(self, graph: Any, replays: int) -> float:
        pairs = [self._timed(graph, None) for _ in range(replays)]
        self._finish()
        return sorted(_elapsed_us(pair) for pair in pairs)[replays // 2]

    def _warm_up(
        self, graphs: Mapping[Run, Sequence[Any]], order: Sequence[Run], plan: "Plan", replay_us: float
    ) -> None:
        """Keep the card busy for about 50 ms: an idle card needs that long to reach its working clock.

        Slow kernels have done so while their time was estimated.
        """
        for _ in range(min(200, int(50_000 / (replay_us * len(order))))):
            for run in order:
                self._restore(run.copy, plan.chunks[0])
                ask(cu.cuGraphLaunch, graphs[run][0], self.stream)
        self._finish(100_000)

    # Outputs of the timed runs

    def _collect(self, plan: "Plan", done: int, batch: int) -> list[dict[str, Any]]:
        """Put what the last replays wrote into the arena: once for each program and seed, and every set that differs.

        Sets of one seed have equal inputs, so a deterministic kernel gives equal outputs and one copy is enough.
        """
        offset = int(self.params["outputs_offset"])
        room = int(self.params["arena_bytes"])
        arena = self.card.arena
        kept: list[dict[str, Any]] = []
        # Only sets that were replayed since the last poisoning hold outputs.
        steps = range(done - batch, done)
        written = sorted({index for step in steps for index in plan.chunks[step % len(plan.chunks)]})
        outputs = [buffer for buffer in self.buffers if buffer.role in ("out", "io") and buffer.nbytes]
        per_set = sum(buffer.nbytes for buffer in outputs) * int(self.params["checked_programs"])
        stride = max(1, -(-len(written) * per_set // CHECKED_BYTES))
        # An odd stride meets both seeds.
        written = written[:: stride | 1 if stride > 1 else 1]
        scratch = np.empty(max((buffer.nbytes for buffer in outputs), default=0), np.uint8)
        for program in range(int(self.params["checked_programs"])):
            # The last to write on copy p was program p, see `block_halves`.
            first: dict[tuple[str, int], Bytes] = {}
            for index in written:
                for buffer in outputs:
                    data = scratch[: buffer.nbytes]
                    self.driver.download(data, buffer.address(program, index))
                    key = (buffer.name, index % self.seeds)
                    if (key in first and np.array_equal(first[key], data)) or offset + buffer.nbytes > room:
                        continue
                    place = arena[offset : offset + buffer.nbytes]
                    place[:] = data
                    first.setdefault(key, place)
                    kept.append(
                        {
                            "program": program,
                            "buffer": buffer.name,
                            "seed": index % self.seeds,
                            "set": index,
                            "offset": offset,
                        }
                    )
                    offset += -(-buffer.nbytes // 64) * 64
        return kept


@frozen
class Plan:
    """`chunks[i % len(chunks)]` are the sets that each replay of sample i launches, in order."""

    chunks: tuple[tuple[int, ...], ...]
    samples: int
    halves: tuple[tuple[Run, ...], ...]


def plan_samples(
    sets: int, fastest_us: float, slowest_us: float, has_io: bool, programs: int, params: Mapping[str, Any]
) -> Plan:
    """How many launches make a replay, which replays a sample, and how many samples.

    A replay should last about `target_us`, because events tell half a microsecond apart, or half of it where a sample
    is the mean of four; K and R belong together: launches come in whole rounds of the sets, or a round is cut into
    chunks that samples take in turn. Blocks are full while half of `least_samples` of them fit into `budget_s`: such a
    block has four times a single sample's replays.
    """
    target_us = float(params["target_us"])

    def launches_of(replay_us: float) -> int:
        return max(1, min(int(params["most_launches"]), math.ceil(replay_us / fastest_us)))

    launches = launches_of(target_us if programs == 1 else target_us / 2)
    if launches >= sets and not has_io:
        rounds = -(-launches // sets)
        chunks = [tuple(index for _ in range(rounds) for index in range(sets))]
    elif sets * slowest_us <= 5 * target_us or launches >= sets:
        chunks = [tuple(range(sets))]
    else:
        launches = launches_of(target_us)
        chunks = [tuple(range(start, min(sets, start + launches))) for start in range(0, sets, launches)]
        if len(chunks) > 1 and len(chunks[-1]) < launches:
            # Samples of one size only, so that their fixed costs weigh the same: the last chunk takes from the front.
            chunks[-1] = tuple(range(sets - launches, sets))
    replay_us = max(len(chunk) for chunk in chunks) * slowest_us

    def affordable(budget: str, halves: Sequence[Sequence[Run]]) -> int:
        replays = sum(len(half) + EMPTY_SHARE for half in halves)
        return int(float(params[budget]) * 1e6 / (replay_us * replays))

    halves, least, fewest = block_halves(programs), int(params["least_samples"]), 5
    if programs > 1:
        least = -(-least // 2)
        if affordable("budget_s", halves) < least:
            halves, fewest = block_halves(programs, short=True), 3
    samples = max(affordable("budget_s", halves), min(affordable("most_budget_s", halves), least))
    return Plan(tuple(chunks), max(fewest, min(int(params["most_samples"]), samples)), halves)


def _elapsed_us(pair: Any) -> float:
    return float(ask(cu.cuEventElapsedTime, pair[0], pair[1])) * 1000
