"""Kernels on a GPU: the worker's side. The context lives in a child that may die and is replaced.

Nothing here imports CUDA. `open_backend` starts `worker.gpu_runner`, which does; buffers go through a shared memory
file, and an answer that does not come in time ends the child and becomes `Faulted("timeout", ...)`. After a fault the
next run starts a new child; from the first fault on a spare one waits, imports done but without a context.
"""

import base64
import collections
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import logging
import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from dice_lsp.lease import Lease
from dice_lsp.process import ChildDied, ChildError, Limits, SyncFramedChild, module_command
from dice_lsp.worker.code_notes import kept_state
from dice_lsp.worker.confine import LEVELS, SWITCH, asked_level
from dice_lsp.worker.launch import (
    Array,
    BufferArgument,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Pointer,
    Ran,
    RunResult,
    ScalarArgument,
    Source,
)

log = logging.getLogger(__name__)

START_DEADLINE_S = 60.0
SETUP_ALLOWANCE_S = 30.0
"""On top of a kernel's own deadline: the context, loading, and copies. The child itself keeps the kernel's deadline."""
TIMING_DEADLINE_S = 120.0
KILLS_BEFORE_QUARANTINE = 2
LEAST_DEADLINE_S = 2.0
DEADLINE_FACTOR = 20
"""A launch of the shape and the scalars of one that has ended may take this many times as long, and no less than the
least deadline. A case that has not run yet has the whole time that is allowed: what it takes cannot be told from others,
since a scalar may be a number of rounds."""
KNOWN_LAUNCHES = 4096
SPARE_OUTPUT_BYTES = 256 << 20
RUNNER_LIMITS = Limits(file_bytes=1 << 20, open_files=1024)
"""A context maps far more than it uses, so its address space has no limit; nothing it writes is a file."""
_ALIGNMENT = 64
_PACKAGES = {"pycuda": "pycuda", "cuda-core": "cuda.core"}
_EXTRAS = {"pycuda": "pycuda", "cuda-core": "gpu"}

Check = Callable[[], None]
OnProgress = Callable[[int, int], None]


@frozen
class DeviceInfo:
    """A GPU as its driver describes it; `attributes` is what `roofline.peaks` reads."""

    name: str
    arch: str
    """`sm_90` and the like."""
    driver: str
    """`580.65.06`, or `CUDA 13.0` where the management library does not answer."""
    cuda: str
    """The newest CUDA version that the driver speaks, e.g. `13.0`."""
    library: str
    """The Python library and its version: `pycuda 2026.1`."""
    l2_bytes: int
    memory_bytes: int
    smem_optin_bytes: int
    attributes: Mapping[str, Any]


@frozen(eq=False)
class TimedBuffer:
    """A pointer argument of a timed launch. `initial` holds one array per seed, empty for a poisoned buffer."""

    name: str
    role: str
    """`in`, `io`, `out` or `tmp`."""
    nbytes: int
    initial: tuple[Array, ...]
    passed: bool = True
    """As `launch.BufferArgument.passed`."""


@frozen
class TimedScalar:
    """A by-value argument: its bytes for each seed."""

    name: str
    data: tuple[bytes, ...]
    pointers: tuple[Pointer, ...] = ()
    """As `launch.ScalarArgument.pointers`."""


@frozen(eq=False)
class TimingOrder:
    """What to time: one or two programs with the same arguments, in one shape."""

    sources: tuple[Source, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    arguments: tuple[TimedBuffer | TimedScalar, ...]
    seeds: int
    checked_programs: int = 1
    """How many of the programs, from the first, hand back what they wrote."""
    cold: bool = True
    hot: bool = False
    """Also time the first program with its data in the cache."""
    deadline_s: float = 10.0
    target_us: float = 1000.0
    least_samples: int = 20
    most_samples: int = 40
    budget_s: float = 1.0
    most_budget_s: float = 10.0
    variables: Mapping[str, bytes] = field(factory=dict)
    """As `launch.Launch.variables`."""


@frozen(eq=False)
class TimedOutput:
    """What a timed launch wrote: `program` and `seed` say what it should be, `index` which rotated set it was."""

    program: int
    buffer: str
    seed: int
    index: int
    data: Array
    """Bytes."""


@frozen(eq=False)
class Samples:
    """Raw figures of one timing, in microseconds per launch; sample i of each list belongs together."""

    programs: tuple[tuple[float, ...], ...]
    gap_us: tuple[float, ...]
    """The empty kernel of the same launch shape."""
    floor_us: float
    """The empty kernel of one block in a row of them: what any launch takes."""
    overhead_us: float
    """What timing adds to a launch, already in every sample."""
    launches: int
    """Launches in one replay."""
    sets: int
    cold: bool
    clock_mhz: tuple[float | None, ...]
    """The multiprocessors' clock during each sample."""
    throttle: tuple[int | None, ...]
    """NVML's bits of reasons that hold the clock down, during each sample."""
    busy: str | None
    """One sentence if somebody else used the device meanwhile."""
    outputs: tuple[TimedOutput, ...] = field(factory=tuple)
    hot_us: tuple[float, ...] = ()
    """The first program with its data in the cache, where asked for; less what timing adds."""
    method: str = "graph"
    """As `records.Timing.method`."""
    speeds_mhz: tuple[tuple[float | None, ...], ...] = ()
    """The multiprocessors' mean clock while each program ran, by the card's own counters; as `programs`."""
    pauses: int = 0
    """How often the card was left to cool."""
    remembered_us: tuple[float, float] | None = None
    """Where the first program seems to keep results: a launch on numbers never seen before, and the next on the same."""


@frozen
class Declined:
    """Nothing was timed: somebody else computes on the device, or a launch takes too long. `reason` is one sentence."""

    reason: str


@frozen
class Unloadable:
    """The device code of program number `program` does not load on this device; `reason` is the driver's word."""

    program: int
    reason: str


TimeResult = Samples | Declined | Faulted | NotSupported | Unloadable


class Arena:
    """A shared memory file that grows, mapped here and in the children, and cannot shrink under anybody's feet."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("dice-buffers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.nbytes = 0
        self._map: mmap.mmap | None = None
        self.bytes: Array = np.empty(0, np.uint8)

    def reserve(self, nbytes: int) -> None:
        """Make room for at least `nbytes`."""
        if nbytes > self.nbytes:
            rounded = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.fd, rounded)
            self._map = mmap.mmap(self.fd, rounded)
            self.bytes = np.frombuffer(self._map, np.uint8)
            self.nbytes = rounded

    def put(self, offset: int, data: Array) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.bytes[offset : offset + raw.nbytes] = raw

    def take(self, offset: int, like: Array) -> Array:
        """A copy of what lies at `offset`, in the dtype and length of `like`."""
        return np.array(self.bytes[offset : offset + like.nbytes]).view(like.dtype)

    def empty(self) -> None:
        """Give the memory back to the system; the file keeps its length and reads as zeros."""
        if self._map is not None:
            with contextlib.suppress(OSError, ValueError):
                self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        self.bytes = np.empty(0, np.uint8)
        self._map = None
        with contextlib.suppress(OSError):
            os.close(self.fd)


def _places(sizes: Sequence[int], start: int = 0) -> tuple[list[int], int]:
    """Aligned offsets for buffers of these sizes, and the end."""
    offsets = []
    for size in sizes:
        offsets.append(start)
        start += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offsets, start


class GpuBackend:
    """A GPU, behind a runner child. Implements `launch.Backend`; `time` is what `worker.benchmark` needs besides.

    Not for use from several threads. Start it from a thread that lives on: the child ends with it.
    """

    def __init__(self, kind: str, device_index: int, env: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.name = ""
        self.device_index = device_index
        self.info: DeviceInfo | None = None
        self.lease: Lease | None = None
        """The card's lock, held by whoever asks this back end to run something; None before `start`."""
        self.runners_started = 0
        self._levels = list(LEVELS[LEVELS.index(asked_level()) :])
        self._given_up: list[str] = []
        self._isolation = ""
        self._opened = False
        self._env = env
        self._arena = Arena()
        self._child: SyncFramedChild | None = None
        self._spare: SyncFramedChild | None = None
        self._faulted_before = False
        self._sent: set[str] = set()
        self._kills: collections.Counter[str] = collections.Counter()
        self._took_s: collections.OrderedDict[tuple[Any, ...], float] = collections.OrderedDict()
        self._held_by: int | None = None
        self._heap_user: bytes | None = None
        """Device code that takes from the heap of the present context."""
        self._bus_id = ""

    # Opening and closing

    def start(self) -> str | None:
        """Start the runner and ask it what the device is. Returns one sentence if it cannot be used.

        A driver that does not start under the strictest confinement gets a looser one: a GPU that cannot be used would
        help nobody, and `isolation` says what is left.
        """
        first = ""
        while True:
            try:
                answer = self._runner().call("hello", {}, deadline_s=START_DEADLINE_S)
            except (ChildDied, ChildError, TimeoutError) as error:
                tail = self._child.stderr_tail.splitlines()[-1:] if self._child is not None else []
                self.close()
                return f"{self.kind} could not be started: {error}" + (f" ({tail[0]})" if tail else "")
            if "unusable" not in answer:
                break
            first = first or answer["unusable"]
            if not self._loosened(answer["unusable"]):
                self.close()
                return f"{self.kind} cannot use the GPU: {first}"
        self._isolation = answer["isolation"]
        major, minor = answer["capability"]
        self.name = answer["name"]
        self._bus_id = answer["bus_id"]
        self.lease = Lease(answer["uuid"])
        self.info = DeviceInfo(
            name=answer["name"],
            arch=f"sm_{major}{minor}",
            driver=_driver_version() or f"CUDA {answer['cuda']}",
            cuda=answer["cuda"],
            library=f"{self.kind} {answer['library']}",
            l2_bytes=answer["l2_bytes"],
            memory_bytes=answer["memory_bytes"],
            smem_optin_bytes=answer["smem_optin_bytes"],
            attributes=answer,
        )
        return None

    @property
    def arch(self) -> str:
        """`sm_90` and the like: what to compile for."""
        assert self.info is not None
        return self.info.arch

    @property
    def isolation(self) -> str:
        """How the runner is confined, and why not more: `seccomp, limits (no landlock in this kernel)`."""
        if self._given_up:
            return f"{self._isolation} (the driver does not work under {' or '.join(self._given_up)})"
        chosen = f" ({SWITCH}={os.environ[SWITCH]})" if asked_level() != LEVELS[0] else ""
        return self._isolation + chosen

    @property
    def runner_pid(self) -> int | None:
        """The process that owns the context now."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def close(self) -> None:
        for child in (self._child, self._spare):
            if child is not None:
                child.close()
        self._child = self._spare = None
        self._arena.close()

    def _loosened(self, reason: str) -> bool:
        """Take the next level of confinement; False when there is none left. The children of this one are ended.

        Never once a context was had: what runs in it must not talk its successor out of its confinement.
        """
        full = "out of memory" in reason.lower().replace("_", " ")
        if self._opened or full or len(self._levels) == 1:
            return False
        log.warning("%s does not work confined by %s (%s)", self.kind, self._levels[0], reason)
        self._given_up.append(self._levels.pop(0))
        for child in (self._child, self._spare):
            if child is not None:
                child.close()
        self._child = self._spare = None
        return True

    def _new_child(self) -> SyncFramedChild:
        self.runners_started += 1
        arguments = (self.kind, str(self.device_index), str(self._arena.fd), self._levels[0])
        return SyncFramedChild(
            module_command("dice_lsp.worker.gpu_runner", *arguments),
            name=f"GPU runner ({self.kind})",
            limits=RUNNER_LIMITS,
            env=self._env,
            pass_fds=(self._arena.fd,),
        )

    def _runner(self) -> SyncFramedChild:
        if self._child is None or not self._child.alive:
            if self._child is not None:
                self._discard()
            if self._spare is not None and self._spare.alive:
                self._child, self._spare = self._spare, None
            else:
                self._child = self._new_child()
            self._sent.clear()
            if self._faulted_before and self._spare is None:
                self._spare = self._new_child()
        return self._child

    def _discard(self) -> None:
        """End the present child and see that the card has let go of it."""
        child, self._child, self._heap_user = self._child, None, None
        if child is None:
            return
        child.close()
        self._faulted_before = True
        self._held_by = None if _gone(self._bus_id, child.pid, 5.0) else child.pid

    def _stuck(self) -> NotSupported | None:
        """A killed child that the card has not let go of: nothing measured beside it would mean anything."""
        if self._held_by is not None and not _gone(self._bus_id, self._held_by, 0.0):
            return NotSupported(f"the GPU is still held by the killed process {self._held_by}: see nvidia-smi")
        self._held_by = None
        return None

    # Running

    def prepare(self, source: Source) -> "GpuPrepared | NotSupported":
        """A kernel that is ready to run. Needs `source.compiled` with its device code."""
        if source.function is not None:
            return NotSupported("CPU functions run on the host, not on the GPU")
        if source.compiled is None or not source.compiled.cubin:
            return NotSupported("the kernel was not compiled to device code")
        if self.info is not None and not _loads_on(source.compiled.arch, self.info.arch):
            return NotSupported(f"code for {source.compiled.arch} does not run on this GPU, which is {self.info.arch}")
        return GpuPrepared(self, source)

    def _program(self, source: Source) -> dict[str, Any]:
        compiled = source.compiled
        assert compiled is not None
        key = hashlib.sha256(compiled.cubin).hexdigest()
        program: dict[str, Any] = {"cubin_key": key, "symbol": compiled.symbol}
        if key not in self._sent:
            program["cubin"] = base64.b64encode(compiled.cubin).decode()
            self._sent.add(key)
        return program

    def _call(self, op: str, params: Callable[[], dict[str, Any]], deadline_s: float, **hooks: Any) -> dict[str, Any]:
        """A call whose failures of the child are faults of the kernel. `params` is made once the child is known."""
        answer = self._call_once(op, params, deadline_s, **hooks)
        while "unopened" in answer and self._loosened(answer["unopened"]):
            hello = self._runner().call("hello", {}, deadline_s=START_DEADLINE_S)
            if "unusable" in hello:
                answer = {"unopened": hello["unusable"]}
                continue
            self._isolation = hello["isolation"]
            answer = self._call_once(op, params, deadline_s, **hooks)
        if "unopened" in answer:
            refusal = f"the GPU gives no context: {answer['unopened']}"
            return {"unsupported": refusal, "declined": refusal}
        self._opened = True
        return answer

    def _call_once(
        self, op: str, params: Callable[[], dict[str, Any]], deadline_s: float, **hooks: Any
    ) -> dict[str, Any]:
        child = self._runner()
        try:
            answer: dict[str, Any] = child.call(op, params(), deadline_s=deadline_s, **hooks)
        except TimeoutError:
            self._discard()
            return _fault("timeout", f"no answer from the GPU within {deadline_s:g} s")
        except ChildDied as error:
            self._discard()
            return _fault("fault", str(error))
        except ChildError:
            # Its own error, not the kernel's; what it still holds is unknown, so it goes.
            self._discard()
            raise
        except BaseException:
            if not child.alive:
                self._discard()
            raise
        if "fault" in answer and answer["fault"]["sticky"]:
            self._discard()
        return answer

    def run_once(self, source: Source, launch: Launch) -> RunResult:
        """One launch between guards."""
        assert source.compiled is not None
        key = f"{hashlib.sha256(source.compiled.cubin).hexdigest()} {source.compiled.symbol}"
        if self._kills[key] >= KILLS_BEFORE_QUARANTINE:
            return Faulted("timeout", f"not run again: it had to be killed {self._kills[key]} times")
        self._with_a_fresh_heap(source)
        if (stuck := self._stuck()) is not None:
            return stuck
        known = (key, *_shape(launch))
        launch = evolve(launch, deadline_s=self._deadline_s(known, launch.deadline_s))
        buffers = [argument for argument in launch.arguments if isinstance(argument, BufferArgument)]
        windows = max(1, len(launch.windows))
        offsets, end = _places([windows * buffer.initial.nbytes for buffer in buffers])
        self._arena.reserve(max(end, 1))
        for buffer, offset in zip(buffers, offsets, strict=True):
            self._arena.put(offset, buffer.initial)
        answer = self._launch(source, launch, offsets, "left" if launch.guard is Guard.LEFT else "right")
        if "fault" in answer:
            fault = answer["fault"]
            if fault["hazard"] == "timeout":
                self._kills[key] += 1
            elif fault["code"] == 700:
                fault = self._locate(source, launch, offsets) or fault
            result: RunResult = Faulted(fault["hazard"], fault["where"])
        elif "unsupported" in answer:
            result = NotSupported(answer["unsupported"])
        else:
            outputs = {
                buffer.name: self._arena.take(offset, np.tile(buffer.initial, windows))
                if buffer.writable
                else np.tile(buffer.initial, windows)
                for buffer, offset in zip(buffers, offsets, strict=True)
            }
            self._remember(known, float(answer["elapsed_ms"]) / 1000)
            changed = _changed_state(source, answer)
            result = Ran(outputs, float(answer["elapsed_ms"]), _notes(source.compiled.cubin), changed)
        self._arena.empty()
        return result

    def _with_a_fresh_heap(self, *sources: Source) -> None:
        """Replace the runner if another text may have left its context's heap full.

        What a kernel takes with `malloc` and does not give back is gone until the context ends, whatever is loaded.
        """
        codes = [source.compiled.cubin for source in sources if source.compiled is not None]
        if self._heap_user is not None and self._heap_user not in codes:
            self._discard()
        self._heap_user = next((code for code in codes if b"malloc" in code), self._heap_user)

    def _deadline_s(self, known: tuple[Any, ...], most_s: float) -> float:
        took_s = self._took_s.get(known)
        return most_s if took_s is None else min(most_s, max(LEAST_DEADLINE_S, DEADLINE_FACTOR * took_s))

    def _remember(self, known: tuple[Any, ...], took_s: float) -> None:
        self._took_s[known] = max(took_s, self._took_s.pop(known, 0.0))
        if len(self._took_s) > KNOWN_LAUNCHES:
            self._took_s.popitem(last=False)

    def _launch(self, source: Source, launch: Launch, offsets: Sequence[int], layout: str) -> dict[str, Any]:
        places = iter(offsets)
        arguments = [
            {"data": argument.data.hex(), "pointers": pointers_of(argument)}
            if isinstance(argument, ScalarArgument)
            else {
                "name": argument.name,
                "offset": next(places),
                "nbytes": argument.initial.nbytes,
                "itemsize": argument.itemsize,
                "writable": argument.writable,
                "repeats": argument.repeats,
                "passed": argument.passed,
            }
            for argument in launch.arguments
        ]
        order = {
            "grid": launch.grid,
            "block": launch.block,
            "smem_bytes": launch.smem_bytes,
            "extra_smem_bytes": launch.extra_smem_bytes,
            "shift_bytes": launch.shift_bytes,
            "windows": launch.windows,
            "layout": layout,
            "deadline_s": launch.deadline_s,
            "arguments": arguments,
            "variables": {name: base64.b64encode(data).decode() for name, data in launch.variables.items()},
        }
        allowance = SETUP_ALLOWANCE_S + self._arena.nbytes / 2e8
        return self._call(
            "run",
            lambda: {**self._program(source), "launch": order, "arena_bytes": self._arena.nbytes},
            launch.deadline_s + allowance,
        )

    def _locate(self, source: Source, launch: Launch, offsets: Sequence[int]) -> dict[str, Any] | None:
        """After an illegal address: run once more between wide canary bands, which name the element that is written.

        None when no band is touched: the access is a read, or far away.
        """
        short = min(launch.deadline_s, 2.0)
        answer = self._launch(source, evolve(launch, deadline_s=short), offsets, "wide")
        fault: dict[str, Any] | None = answer.get("fault")
        return fault if fault is not None and fault["hazard"] == "out_of_bounds" and fault["code"] == 0 else None

    # Timing

    def time(
        self, order: TimingOrder, *, check: Check | None = None, on_progress: OnProgress | None = None
    ) -> TimeResult:
        """Time programs side by side. What `check` raises ends the timing and is raised again."""
        self._with_a_fresh_heap(*order.sources)
        if (stuck := self._stuck()) is not None:
            return stuck
        buffers = [argument for argument in order.arguments if isinstance(argument, TimedBuffer)]
        inputs, end = _places([data.nbytes for buffer in buffers for data in buffer.initial])
        written = sum(-(-b.nbytes // _ALIGNMENT) * _ALIGNMENT for b in buffers if b.role in ("out", "io"))
        outputs_at = end
        # Room for every seed of every checked program, and for a few sets more that differ from the first of their seed.
        spare_sets = min(6, max(1, SPARE_OUTPUT_BYTES // max(1, written)))
        self._arena.reserve(max(1, end + written * (order.checked_programs * order.seeds + spare_sets)))
        places = iter(inputs)
        arguments: list[dict[str, Any]] = []
        for argument in order.arguments:
            if isinstance(argument, TimedScalar):
                pointers = pointers_of(argument)
                arguments.append({"data": [data.hex() for data in argument.data], "pointers": pointers})
                continue
            offsets = [next(places) for _ in argument.initial]
            for initial, offset in zip(argument.initial, offsets, strict=True):
                self._arena.put(offset, initial)
            arguments.append(
                {
                    "name": argument.name,
                    "role": argument.role,
                    "nbytes": argument.nbytes,
                    "offsets": offsets,
                    "passed": argument.passed,
                }
            )

        def params() -> dict[str, Any]:
            return {
                "programs": [self._program(source) for source in order.sources],
                "grid": order.grid,
                "block": order.block,
                "smem_bytes": order.smem_bytes,
                "arguments": arguments,
                "seeds": order.seeds,
                "checked_programs": order.checked_programs,
                "cold": order.cold,
                "hot": order.hot,
                "target_us": order.target_us,
                "least_samples": order.least_samples,
                "most_samples": order.most_samples,
                "budget_s": order.budget_s,
                "most_budget_s": order.most_budget_s,
                "deadline_s": order.deadline_s,
                "outputs_offset": outputs_at,
                "arena_bytes": self._arena.nbytes,
                "variables": {name: base64.b64encode(data).decode() for name, data in order.variables.items()},
            }

        def on_event(event: str, data: Any) -> None:
            if on_progress is not None:
                on_progress(int(data["done"]), int(data["of"]))

        answer = self._call("time", params, TIMING_DEADLINE_S + order.deadline_s, check=check, on_event=on_event)
        result = self._samples(answer, buffers)
        self._arena.empty()
        return result

    def _samples(self, answer: Mapping[str, Any], buffers: Sequence[TimedBuffer]) -> TimeResult:
        if "fault" in answer:
            return Faulted(answer["fault"]["hazard"], answer["fault"]["where"])
        if "unloadable" in answer:
            return Unloadable(answer["unloadable"]["program"], answer["unloadable"]["reason"])
        if "samples_us" not in answer:
            return Declined(answer["declined"])
        sizes = {buffer.name: buffer.nbytes for buffer in buffers}
        outputs = tuple(
            TimedOutput(
                kept["program"],
                kept["buffer"],
                kept["seed"],
                kept["set"],
                np.array(self._arena.bytes[kept["offset"] : kept["offset"] + sizes[kept["buffer"]]]),
            )
            for kept in answer["outputs"]
        )
        per_sample = [batch for batch in answer["batches"] for _ in range(batch["count"])]
        return Samples(
            programs=tuple(tuple(column) for column in answer["samples_us"]),
            gap_us=tuple(answer["gap_us"]),
            floor_us=answer["floor_us"],
            overhead_us=answer["overhead_us"],
            launches=answer["launches"],
            sets=answer["sets"],
            cold=answer["cold"],
            clock_mhz=tuple(batch["clock_mhz"] for batch in per_sample),
            throttle=tuple(batch["throttle"] for batch in per_sample),
            busy=answer["busy"],
            outputs=outputs,
            hot_us=tuple(answer["hot_us"]),
            method=answer["method"],
            speeds_mhz=tuple(tuple(column) for column in answer["speeds_mhz"]),
            pauses=answer["pauses"],
            remembered_us=None if answer["remembered_us"] is None else tuple(answer["remembered_us"]),
        )


class GpuPrepared:
    """A kernel that is ready to run on a `GpuBackend`. Its code is loaded anew for every launch: no state survives."""

    def __init__(self, backend: GpuBackend, source: Source) -> None:
        self._backend = backend
        self._source = source

    def run(self, launches: Sequence[Launch]) -> list[RunResult]:
        """Run the launches in order, up to the first that does not end as `Ran`."""
        results: list[RunResult] = []
        for launch in launches:
            results.append(self._backend.run_once(self._source, launch))
            if not isinstance(results[-1], Ran):
                break
        return results


def open_backend(
    kind: str = "auto", device_index: int = 0, *, env: Mapping[str, str] | None = None
) -> GpuBackend | str:
    """The GPU back end of `kind` (`auto`, `pycuda`, `cuda-core`), or one sentence on why there is none.

    `auto` takes pycuda where it works, else cuda-core. Without a driver the answer comes at once, nothing is imported
    and no process starts. The caller closes the back end.
    """
    if sys.platform != "linux":
        return f"GPU back ends need Linux; this is {sys.platform}"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver: libcuda.so.1 is not there"
    kinds = ("pycuda", "cuda-core") if kind == "auto" else (kind,)
    reasons = []
    for candidate in kinds:
        if candidate not in _PACKAGES:
            return f"there is no GPU back end {candidate!r}: choose auto, pycuda or cuda-core"
        if not _importable(_PACKAGES[candidate]):
            reasons.append(f"{candidate} is not installed: pip install 'dice-lsp[{_EXTRAS[candidate]}]'")
            continue
        backend = GpuBackend(candidate, device_index, env)
        reason = backend.start()
        if reason is None:
            return backend
        reasons.append(reason)
    return "; ".join(reasons)


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _loads_on(compiled_for: str, device: str) -> bool:
    """Device code runs on later minor revisions of its major one; `sm_90a` and `sm_100f` are held to their own."""
    target, own = compiled_for.removeprefix("sm_"), device.removeprefix("sm_")
    digits = target.rstrip("af")
    if not digits.isdigit() or not own.isdigit():
        return True
    if target.endswith("a"):
        return digits == own
    return digits[:-1] == own[:-1] and int(digits) <= int(own)


def _shape(launch: Launch) -> tuple[Any, ...]:
    """What decides how long a launch takes, apart from what its buffers hold."""
    arguments = tuple(
        (argument.data, argument.pointers)
        if isinstance(argument, ScalarArgument)
        else argument.initial.nbytes * max(1, argument.repeats)
        for argument in launch.arguments
    )
    return launch.grid, launch.block, launch.smem_bytes, launch.extra_smem_bytes, arguments


def pointers_of(argument: ScalarArgument | TimedScalar) -> list[tuple[int, str, int]]:
    """What is an address in a by-value argument, as it travels: offset, buffer, offset in the buffer."""
    return [(pointer.offset, pointer.buffer, pointer.byte_offset) for pointer in argument.pointers]


def _fault(hazard: str, where: str) -> dict[str, Any]:
    return {"fault": {"code": 0, "hazard": hazard, "where": where, "sticky": False}}


def _changed_state(source: Source, answer: Mapping[str, Any]) -> tuple[str, ...]:
    """Device variables that a launch has changed. One that cannot be read counts when the text seems to write it."""
    changed = [str(name) for name in answer.get("changed", ())]
    if answer.get("unread") and (name := kept_state(source.device_text)) is not None and name in answer["unread"]:
        changed.append(name)
    return tuple(dict.fromkeys(changed))


def _notes(cubin: bytes) -> tuple[str, ...]:
    notes = []
    if b"vprintf" in cubin:
        notes.append("uses printf")
    if b".nv.global" in cubin:
        notes.append("has __device__ variables")
    return tuple(notes)


def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        log.debug("NVML does not answer: %s", error)
        return None
    return pynvml


def _driver_version() -> str | None:
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except Exception:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _gone(bus_id: str, pid: int, patience_s: float) -> bool:
    """Whether the card no longer lists a process. True where NVML does not say: then waiting would not help."""
    nvml = _nvml()
    if nvml is None:
        return True
    deadline = time.monotonic() + patience_s
    while True:
        try:
            handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
            if pid not in {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}:
                return True
        except Exception as error:
            log.debug("NVML does not list processes: %s", error)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
