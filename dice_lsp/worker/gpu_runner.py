"""The child that owns a GPU's context: loads device code, runs it between guards, times it, and may die.

`worker.device` starts it with `python -m dice_lsp.worker.gpu_runner KIND INDEX ARENA_FD LEVEL` and speaks frames with it
(`process.serve`). Buffers travel through the arena, a shared memory file whose descriptor the child inherits; a frame
only says where in it. What a kernel should have computed never comes here: a kernel that reads this process finds
inputs and nothing else.

A kernel that breaks its context ends in an answer `{"fault": ...}`; the parent then replaces this process, because a
CUDA context does not recover from such an error.
"""

import base64
import ctypes
import importlib
import logging
import math
import mmap
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import numpy as np
from attrs import frozen
from cuda.bindings import driver as cu

from dice_lsp import process
from dice_lsp.worker.confine import Confinement, runner_policy
from dice_lsp.worker.elf import plain_name
from dice_lsp.worker.gpu_driver import (
    DRIVERS,
    FAULTS,
    INVALID_VALUE,
    MODULES,
    OUT_OF_MEMORY,
    STICKY,
    UNLOADABLE,
    Bytes,
    Driver,
    DriverError,
    Function,
    ask,
    blank_arguments,
    error_name,
    with_addresses,
)
from dice_lsp.worker.machine_code import writable_variables
from dice_lsp.worker.stopwatch import Stopwatch

log = logging.getLogger(__name__)

CANARY = 0xC5
"""Fills the guard bands. Not 0x00, 0xFF or 0xA5: a kernel that copies a poisoned or zeroed value there is seen."""
BAND_BYTES = 64 << 10
MINIMUM_BAND_BYTES = 4 << 10
WIDE_BAND_BYTES = 4 << 20
"""Bands of the run that looks for the element after a fault: wide, so that the faulting write lands in one."""
LIMITS = {
    "MALLOC_HEAP_SIZE": 64 << 20,
    "PRINTF_FIFO_SIZE": 1 << 20,
    "STACK_SIZE": 1 << 10,
    "PERSISTING_L2_CACHE_SIZE": 0,
}
"""What a kernel may take beside its buffers, in bytes: in all for its `malloc` and `printf`, and per thread for the
part of its stack that the compiler could not count. Said here although they are about a driver's defaults, so that no
setting of the machine lets one kernel fill the card. No lines may be kept in the L2 across launches: a kernel that pins
its data would look faster than it is."""
STATE_BYTES = 256 << 20
"""Device variables up to this size are read before and after a launch."""
BASE_ALIGNMENT = 16
"""Buffers start at a multiple of this: kernels read `float*` buffers as `float4`, which `cudaMalloc` would allow."""


@frozen
class Span:
    """Device memory of one buffer: `address` is its first byte, the bands around it are filled with `CANARY`."""

    address: int
    nbytes: int
    before: int
    after: int
    release: Callable[[], None]


@frozen
class BufferOrder:
    """A pointer argument as the parent describes it; `offset` is its place in the arena.

    The buffer is what lies there, `period` bytes, over and over again.
    """

    name: str
    offset: int
    nbytes: int
    period: int
    itemsize: int
    writable: bool


class ModuleState:
    """What the writable variables of freshly loaded device code hold, to be compared with what they hold after a launch."""

    def __init__(self, driver: Driver, function: Function) -> None:
        self._driver = driver
        self._function = function
        self._raw = bool(function.raw)
        self._before: list[tuple[str, int, Bytes]] = []
        self.unread: list[str] = []
        """Names of those that the driver does not find by their names."""
        for variable in writable_variables(function.cubin):
            address = driver.variable_address(function, variable.symbol)
            if address is None or variable.size_bytes > STATE_BYTES:
                self.unread.append(variable.name)
            else:
                self._before.append((variable.name, address, self._read(address, variable.size_bytes)))

    def _read(self, address: int, nbytes: int) -> Bytes:
        data = np.empty(nbytes, np.uint8)
        self._driver.download(data, address)
        return data

    def changed(self) -> list[str]:
        """Names of the variables that hold something else now."""
        if bool(self._function.raw) is not self._raw and self._before:
            # The launch went through a second copy of the code, whose variables are others.
            self.unread += [name for name, _, _ in self._before]
            return []
        return [
            name for name, address, data in self._before if not np.array_equal(self._read(address, data.size), data)
        ]


class Runner:
    """The context and everything in it."""

    def __init__(self, kind: str, index: int, arena_fd: int, isolation: str) -> None:
        ask(cu.cuInit, 0)
        self.kind = kind
        self.isolation = isolation
        self.index = index
        self.device = ask(cu.cuDeviceGet, index)
        self.driver = DRIVERS[kind]()
        self.opened = False
        self.arena_fd = arena_fd
        self._arena: mmap.mmap | None = None
        self.arena: Bytes = np.empty(0, np.uint8)
        self.bus_id: str = ask(cu.cuDeviceGetPCIBusId, 32, self.device).split(b"\0")[0].decode()
        self._cubins: dict[str, bytes] = {}
        self._granularity = 0
        self._last_use = 0.0
        self._abandoned: list[Any] = []

    # Device and context

    def attribute(self, name: str) -> int:
        return int(
            ask(cu.cuDeviceGetAttribute, getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), self.device)
        )

    def hello(self, params: Any, job: process.Job) -> Any:
        """What the device is. Needs no context, so that a spare child costs the card nothing."""
        version = ask(cu.cuDriverGetVersion)
        name = ask(cu.cuDeviceGetName, 128, self.device)
        return {
            "name": name.split(b"\0")[0].decode(errors="replace"),
            "bus_id": self.bus_id,
            "uuid": _uuid_of(self.device),
            "capability": [self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")],
            "cuda": f"{version // 1000}.{version % 1000 // 10}",
            "multiprocessors": self.attribute("MULTIPROCESSOR_COUNT"),
            "sm_clock_khz": self.attribute("CLOCK_RATE"),
            "memory_clock_khz": self.attribute("MEMORY_CLOCK_RATE"),
            "bus_bits": self.attribute("GLOBAL_MEMORY_BUS_WIDTH"),
            "l2_bytes": self.attribute("L2_CACHE_SIZE"),
            "smem_optin_bytes": self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            "memory_bytes": int(ask(cu.cuDeviceTotalMem, self.device)),
            "guard_pages": bool(self.attribute("VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED")),
            "library": _version_of("pycuda" if self.kind == "pycuda" else "cuda-core"),
            "bindings": _version_of("cuda-bindings"),
            "isolation": self.isolation,
        }

    def _open(self) -> None:
        if self.opened:
            return
        self.driver.open(self.index)
        for name, nbytes in LIMITS.items():
            status = int(cu.cuCtxSetLimit(getattr(cu.CUlimit, f"CU_LIMIT_{name}"), nbytes)[0])
            if status != 0:
                log.info("the limit %s stays as it is: %s", name, error_name(status))
        if self.attribute("VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED"):
            self._granularity = int(
                ask(
                    cu.cuMemGetAllocationGranularity,
                    self._allocation_property(),
                    cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM,
                )
            )
        self.opened = True

    def _not_opened(self) -> str | None:
        """Why there is no context: the card is out of memory, say, or the driver cannot work confined as we are."""
        try:
            self._open()
        except DriverError as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return None

    def _map_arena(self, nbytes: int) -> Bytes:
        if nbytes > self.arena.nbytes:
            self._arena = mmap.mmap(self.arena_fd, nbytes)
            self.arena = np.frombuffer(self._arena, np.uint8)
        return self.arena

    def cubin(self, params: Mapping[str, Any]) -> bytes:
        key = params["cubin_key"]
        if params.get("cubin"):
            self._cubins[key] = base64.b64decode(params["cubin"])
        return self._cubins[key]

    # Memory between guards

    def _allocation_property(self) -> Any:
        location = cu.CUmemLocation()
        location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = self.index
        prop = cu.CUmemAllocationProp()
        prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location = location
        return prop

    def _mapped_span(self, nbytes: int, itemsize: int, right: bool, shift: int) -> Span:
        """A buffer whose one end meets unmapped addresses, so that an access past it faults at once.

        Pages are of the card's granularity (2 MB), so only one end can meet them; the band at the other end, and the
        few bytes that alignment leaves, are watched by canaries. On both sides a whole page stays unmapped.
        """
        page = self._granularity
        size = -(-(nbytes + shift + MINIMUM_BAND_BYTES) // page) * page
        base = int(ask(cu.cuMemAddressReserve, size + 2 * page, page, 0, 0))
        undo: list[Callable[[], None]] = [lambda: ask(cu.cuMemAddressFree, base, size + 2 * page)]
        try:
            handle = ask(cu.cuMemCreate, size, self._allocation_property(), 0)
            undo.append(lambda: ask(cu.cuMemRelease, handle))
            start = base + page
            ask(cu.cuMemMap, start, size, 0, handle, 0)
            undo.append(lambda: ask(cu.cuMemUnmap, start, size))
            access = cu.CUmemAccessDesc()
            access.location = self._allocation_property().location
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            ask(cu.cuMemSetAccess, start, size, [access], 1)
        except DriverError:
            for step in reversed(undo):
                step()
            raise

        def release() -> None:
            for step in reversed(undo):
                step()

        if right:
            address = start + size - nbytes
            alignment = itemsize if itemsize > BASE_ALIGNMENT and itemsize & (itemsize - 1) == 0 else BASE_ALIGNMENT
            address -= (address - shift) % alignment
            return Span(address, nbytes, min(BAND_BYTES, address - start), start + size - address - nbytes, release)
        return Span(start + shift, nbytes, shift, min(BAND_BYTES, size - shift - nbytes), release)

    def _banded_span(self, nbytes: int, band: int, shift: int) -> Span:
        base = self.driver.allocate(nbytes + 2 * band)
        return Span(base + band + shift, nbytes, band + shift, band - shift, lambda: self.driver.free(base))

    def _span(self, order: BufferOrder, layout: str, shift: int) -> Span:
        """Memory for a buffer that begins `shift` bytes past a multiple of what vectors are aligned to."""
        if layout in ("right", "left") and self._granularity:
            try:
                span = self._mapped_span(order.nbytes, order.itemsize, layout == "right", shift)
            except DriverError as error:
                if error.code in STICKY or error.code == OUT_OF_MEMORY:
                    raise
                log.warning("guard pages are not to be had (%s): canary bands alone are used", error)
                self._granularity = 0
                return self._span(order, layout, shift)
        else:
            span = self._banded_span(order.nbytes, WIDE_BAND_BYTES if layout == "wide" else BAND_BYTES, shift)
        for address, size in ((span.address - span.before, span.before), (span.address + span.nbytes, span.after)):
            if size:
                ask(cu.cuMemsetD8Async, address, CANARY, size, self.driver.stream)
        return span

    def _fill(self, span: Span, order: BufferOrder, data: Bytes) -> None:
        """Copy a buffer's data in, as often as it is repeated: what is there is doubled until it is full."""
        self.driver.upload(span.address, data)
        filled = order.period
        while filled < order.nbytes:
            part = min(filled, order.nbytes - filled)
            ask(cu.cuMemcpyDtoD, span.address + filled, span.address, part)
            filled += part

    def _windows(self, span: Span, order: BufferOrder, windows: list[int]) -> Bytes:
        """A buffer's bytes; of a launch with windows, those of each of them."""
        repeated = order.nbytes > order.period
        starts = [window * order.period if repeated else 0 for window in windows or (0,)]
        data = np.empty(len(starts) * order.period, np.uint8)
        for number, start in enumerate(starts):
            self.driver.download(data[number * order.period : (number + 1) * order.period], span.address + start)
        return data

    def _broken_canary(self, span: Span, order: BufferOrder) -> str | None:
        """Where a band was written, as `x[1000] of 1000` in elements, nearest to the buffer first; None if it was not."""
        count = order.nbytes // order.itemsize
        after = np.empty(span.after, np.uint8)
        self.driver.download(after, span.address + span.nbytes)
        if (hits := np.flatnonzero(after != CANARY)).size:
            return f"{order.name}[{count + int(hits[0]) // order.itemsize}] of {count}"
        before = np.empty(span.before, np.uint8)
        self.driver.download(before, span.address - span.before)
        if (hits := np.flatnonzero(before != CANARY)).size:
            return f"{order.name}[{-((span.before - int(hits[-1]) - 1) // order.itemsize + 1)}] of {count}"
        return None

    # Running once

    def _wait(self, deadline_s: float) -> bool:
        """Wait for the stream, polling: a hung kernel must not hold this thread. False when the deadline passed."""
        started = time.monotonic()
        while True:
            status = int(cu.cuStreamQuery(self.driver.stream)[0])
            if status == 0:
                return True
            if status != int(cu.CUresult.CUDA_ERROR_NOT_READY):
                raise DriverError(status, "the kernel")
            waited = time.monotonic() - started
            if waited > deadline_s:
                return False
            if waited > 0.002:
                time.sleep(0.0005)

    def run(self, params: Any, job: process.Job) -> Any:
        """One launch between guards. The arena's buffers are inputs before and outputs after it."""
        launch = params["launch"]
        deadline_s = float(launch["deadline_s"])
        if (reason := self._not_opened()) is not None:
            return {"unopened": reason}
        try:
            return self._run(params, launch, deadline_s)
        except DriverError as error:
            if error.code not in FAULTS and error.code not in STICKY:
                if error.code == OUT_OF_MEMORY:
                    return {"unsupported": "the buffers do not fit into the GPU's free memory"}
                if error.code in UNLOADABLE:
                    return {"unsupported": f"the device code does not load on this GPU: {error_name(error.code)}"}
                if error.code == INVALID_VALUE:
                    return {
                        "fault": {
                            "code": 1,
                            "hazard": "fault",
                            "where": "launch refused: invalid configuration",
                            "sticky": False,
                        }
                    }
                raise
            hazard = "out_of_bounds" if error.code == 700 else "timeout" if error.code == 702 else "fault"
            return {
                "fault": {
                    "code": error.code,
                    "hazard": hazard,
                    "where": FAULTS.get(error.code, error_name(error.code)),
                    "sticky": error.code in STICKY,
                }
            }
        finally:
            self._last_use = time.monotonic()

    def _run(self, params: Any, launch: Mapping[str, Any], deadline_s: float) -> Any:
        arena = self._map_arena(int(params["arena_bytes"]))
        stream = self.driver.stream
        # What the kernel does not know of only takes room away from other blocks.
        smem_bytes = int(launch["smem_bytes"]) + int(launch["extra_smem_bytes"])
        function = self.driver.load(self.cubin(params), params["symbol"], smem_bytes)
        self.driver.get_ready(function, blank_arguments(launch["arguments"]), smem_bytes)
        if (missing := self.set_variables(function, launch["variables"])) is not None:
            return {"unsupported": missing}
        state = ModuleState(self.driver, function)
        spans: list[tuple[BufferOrder, Span]] = []
        addresses: dict[str, int] = {}
        lost = False
        try:
            for argument in launch["arguments"]:
                if "data" in argument:
                    continue
                period = int(argument["nbytes"])
                order = BufferOrder(
                    argument["name"], argument["offset"], period * argument["repeats"], period,
                    argument["itemsize"], argument["writable"],
                )  # fmt: skip
                span = self._span(order, launch["layout"], int(launch["shift_bytes"]))
                spans.append((order, span))
                self._fill(span, order, arena[order.offset : order.offset + period])
                addresses[order.name] = span.address
            arguments: list[int | bytes] = [
                with_addresses(bytes.fromhex(a["data"]), a["pointers"], addresses)
                if "data" in a
                else addresses[a["name"]]
                for a in launch["arguments"]
                if a.get("passed", True)
            ]
            # Copies from plain memory may still be under way when they return, on no stream of ours.
            ask(cu.cuCtxSynchronize)
            start, end = ask(cu.cuEventCreate, 0), ask(cu.cuEventCreate, 0)
            ask(cu.cuEventRecord, start, stream)
            self.driver.launch(function, tuple(launch["grid"]), tuple(launch["block"]), smem_bytes, arguments)
            ask(cu.cuEventRecord, end, stream)
            if not self._wait(deadline_s):
                lost = True
                return {
                    "fault": {
                        "code": 0,
                        "hazard": "timeout",
                        "where": f"not done after {deadline_s:g} s",
                        "sticky": True,
                    }
                }
            elapsed_ms = float(ask(cu.cuEventElapsedTime, start, end))
            ask(cu.cuEventDestroy, start)
            ask(cu.cuEventDestroy, end)
            for order, span in spans:
                if (where := self._broken_canary(span, order)) is not None:
                    return {"fault": {"code": 0, "hazard": "out_of_bounds", "where": where, "sticky": False}}
            for order, span in spans:
                place = arena[order.offset : order.offset + order.period]
                after = self._windows(span, order, launch["windows"])
                if order.writable:
                    arena[order.offset : order.offset + after.nbytes] = after
                    continue
                before = np.tile(place, after.nbytes // order.period)
                if not np.array_equal(after, before):
                    first = int(np.flatnonzero(after != before)[0]) // order.itemsize
                    return {
                        "fault": {
                            "code": 0,
                            "hazard": "mutated_input",
                            "where": f"{order.name}[{first}]",
                            "sticky": False,
                        }
                    }
            return {"elapsed_ms": elapsed_ms, "changed": state.changed(), "unread": state.unread}
        except DriverError as error:
            lost = error.code in STICKY
            raise
        finally:
            # After a fault the context is lost and this process with it: nothing in it can be given back. To try
            # would wait for a kernel that never ends, so even the objects that do it when collected are kept.
            if lost:
                self._abandoned.append((function, spans))
            else:
                for _, span in spans:
                    span.release()

    def set_variables(self, function: Function, variables: Mapping[str, str]) -> str | None:
        """Give variables of freshly loaded device code what they should hold; one sentence if one is not there."""
        for symbol, data in variables.items():
            address = self.driver.variable_address(function, symbol)
            if address is None:
                return f"the variable {plain_name(symbol)} of the recorded launch is not in the compiled code"
            self.driver.upload(address, np.frombuffer(base64.b64decode(data), np.uint8))
        return None

    # Timing

    def time(self, params: Any, job: process.Job) -> Any:
        """Replay graphs of launches over rotated buffers; see `Stopwatch`. Faults are answers, as in `run`."""
        stopwatch = None
        if (reason := self._not_opened()) is not None:
            return {"unopened": reason}
        try:
            self._map_arena(int(params["arena_bytes"]))
            idle_s = time.monotonic() - self._last_use if self._last_use else math.inf
            stopwatch = Stopwatch(self, params, job)
            return stopwatch.measure(idle_s)
        except DriverError as error:
            if error.code == OUT_OF_MEMORY:
                return {"declined": "the buffers do not fit into the GPU's free memory beside what others hold"}
            self._abandoned.append(stopwatch)
            return {
                "fault": {
                    "code": error.code,
                    "hazard": "out_of_bounds" if error.code == 700 else "fault",
                    "where": FAULTS.get(error.code, str(error)),
                    "sticky": error.code in STICKY,
                }
            }
        except TimeoutError as error:
            self._abandoned.append(stopwatch)
            return {"fault": {"code": 0, "hazard": "timeout", "where": str(error), "sticky": True}}
        finally:
            self._last_use = time.monotonic()


def _uuid_of(device: Any) -> str:
    """A card's number as NVML and torch spell it, but for their prefix."""
    digits = bytes(ask(cu.cuDeviceGetUuid, device).bytes).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def confined(kind: str, level: str) -> str:
    """Confine this process for good, before the driver starts its threads and before any device code is loaded.

    Returns what holds, for the evidence. The libraries are loaded first, so that wherever they lie is known.
    """
    for name in (MODULES[kind], "pynvml"):
        try:
            importlib.import_module(name)
        except Exception as error:
            log.info("%s: %s", name, error)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        log.info("%s", error)
    with Confinement(runner_policy(), level) as confinement:
        try:
            confinement.enter()
        except OSError as error:
            return f"limits (the kernel refused: {error.strerror})"
        return confinement.words


def main() -> int:
    kind, index, arena_fd, level = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        runner = Runner(kind, index, arena_fd, confined(kind, level))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]

        def refuse(params: Any, job: process.Job) -> Any:
            return {"unusable": reason}

        process.serve({"hello": refuse})
        return 1
    process.serve({"hello": runner.hello, "run": runner.run, "time": runner.time})
    return 0


if __name__ == "__main__":
    sys.exit(main())
