"""The child that owns a GPU's context: loads device code, runs it between guards, times it, and may die.

`worker.device` starts it with `python -m dice_lsp.worker.gpu_runner KIND INDEX ARENA_FD` and speaks frames with it
(`process.serve`). Buffers travel through the arena, a shared memory file whose descriptor the child inherits; a frame
only says where in it. What a kernel should have computed never comes here: a kernel that reads this process finds
inputs and nothing else.

Two drivers load and launch: `PycudaDriver` and `CoreDriver`. What pycuda lacks (graphs, memory mapped at an address,
limits) goes through cuda-bindings on the same primary context, which both share.

A kernel that breaks its context ends in an answer `{"fault": ...}`; the parent then replaces this process, because a
CUDA context does not recover from such an error.
"""

import base64
import ctypes
import logging
import math
import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import define, field, frozen
from cuda.bindings import driver as cu
from numpy.typing import NDArray

from dice_lsp import process

log = logging.getLogger(__name__)

Bytes = NDArray[np.uint8]
Dim3 = tuple[int, int, int]

CANARY = 0xC5
"""Fills the guard bands. Not 0x00, 0xFF or 0xA5: a kernel that copies a poisoned or zeroed value there is seen."""
BAND_BYTES = 64 << 10
MINIMUM_BAND_BYTES = 4 << 10
WIDE_BAND_BYTES = 4 << 20
"""Bands of the run that looks for the element after a fault: wide, so that the faulting write lands in one."""
BASE_ALIGNMENT = 16
"""Buffers start at a multiple of this: kernels read `float*` buffers as `float4`, which `cudaMalloc` would allow."""
OUTPUT_POISON = 0xFF
EVENTS_US = 2.3
"""About what two events add around a graph (H200): for sizing and the hot figure, the cold one is corrected by its own."""
SLOWEST_US = 2e6
RESTORED_SAMPLE_US = 300.0
"""How long a sample with restored buffers should be: each launch of it needs buffers of its own."""
CHECKED_BYTES = 512 << 20
"""How much of what the timed runs wrote is read back; of more, evenly spaced sets are."""

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

FAULTS = {
    700: "illegal address",
    701: "launch refused: too many resources requested",
    702: "launch timed out in the driver",
    710: "device assertion failed",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "address of another memory space",
    718: "invalid program counter",
    719: "unspecified launch failure",
}
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
UNLOADABLE = frozenset({200, 209, 218, 222})
"""Bad image, no code for this GPU, bad PTX, unsupported PTX version."""
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})


class DriverError(Exception):
    """A CUDA call failed. `code` is its CUresult."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what} failed with CUDA error {code} ({error_name(code)})")
        self.code = code


def error_name(code: int) -> str:
    try:
        status, name = cu.cuGetErrorName(cu.CUresult(code))
    except Exception:
        return "unknown"
    return name.decode() if int(status) == 0 and name else "unknown"


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """A cuda-bindings call: its value, or its values as a tuple. Raises `DriverError`."""
    status, *values = call(*arguments)
    if int(status) != 0:
        raise DriverError(int(status), call.__name__)
    return values[0] if len(values) == 1 else tuple(values)


@frozen
class Function:
    """A loaded kernel. `module` keeps its code loaded; `kernel` is the library's own object."""

    module: Any
    kernel: Any
    cubin: bytes
    symbol: str
    raw: list[Any] = field(factory=list)
    """The same kernel as cuda-bindings loads it, once that is needed."""


class Driver(Protocol):
    """What the two libraries must do. Addresses are integers, memory is plain host bytes."""

    def open(self, index: int) -> None:
        """Make the primary context of a device current, and a stream in it."""

    @property
    def stream(self) -> int:
        """The raw handle of the stream that everything runs on."""

    def load(self, cubin: bytes, symbol: str, smem_bytes: int) -> Function:
        """Load device code, allowed to use `smem_bytes` of dynamic shared memory. Raises `DriverError`."""

    def allocate(self, nbytes: int) -> int: ...

    def free(self, address: int) -> None: ...

    def upload(self, address: int, data: Bytes) -> None: ...

    def download(self, data: Bytes, address: int) -> None: ...

    def launch(
        self, function: Function, grid: Dim3, block: Dim3, smem_bytes: int, arguments: Sequence["int | bytes"]
    ) -> None:
        """Queue a launch: an int is an address, bytes are a scalar. Works under stream capture too."""


def _packed(arguments: Sequence["int | bytes"]) -> bytes | None:
    """The arguments one after another, each at a multiple of its size; None where that is not certainly their layout.

    A structure is aligned to its largest member, which its size does not tell, so only scalars that need no padding,
    and addresses, have a certain place.
    """
    packed = bytearray()
    for argument in arguments:
        data = argument.to_bytes(8, "little") if isinstance(argument, int) else argument
        padding = -len(packed) % 8 if isinstance(argument, int) else 0
        if len(data) not in (1, 2, 4, 8) or (len(packed) + padding) % len(data):
            return None
        packed += bytes(padding) + data
    return bytes(packed)


def _launch_raw(
    function: Function,
    grid: Dim3,
    block: Dim3,
    smem_bytes: int,
    arguments: Sequence["int | bytes"],
    stream: int,
) -> None:
    """Launch through cuda-bindings, for arguments that a library cannot take: structures by value.

    The driver is given one address per argument and knows each one's size and place itself.
    """
    if not function.raw:
        module = ask(cu.cuModuleLoadData, function.cubin)
        function.raw.append(ask(cu.cuModuleGetFunction, module, function.symbol.encode()))
        allow_dynamic_smem(function.raw[0], smem_bytes)
    values = [
        ctypes.create_string_buffer(data, len(data))
        for data in (a.to_bytes(8, "little") if isinstance(a, int) else a for a in arguments)
    ]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
    ask(cu.cuLaunchKernel, function.raw[0], *grid, *block, smem_bytes, stream, ctypes.addressof(pointers), 0)


DEFAULT_DYNAMIC_SMEM = 48 << 10


def allow_dynamic_smem(handle: Any, smem_bytes: int) -> None:
    """More than 48 KB of dynamic shared memory must be asked for, see the CUDA C++ programming guide on compute 7.x."""
    if smem_bytes > DEFAULT_DYNAMIC_SMEM:
        attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ask(cu.cuFuncSetAttribute, handle, attribute, smem_bytes)


class PycudaDriver:
    """pycuda: modules, memory, copies and launches. Its errors carry no number, so the context is asked for it."""

    def __init__(self) -> None:
        import pycuda.driver

        self._cuda = pycuda.driver
        self._cuda.init()
        self._allocations: dict[int, Any] = {}

    def open(self, index: int) -> None:
        self._context = self._cuda.Device(index).retain_primary_context()
        self._context.push()
        self._stream = self._cuda.Stream()

    @property
    def stream(self) -> int:
        return int(self._stream.handle)

    def _guarded(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._cuda.Error as error:
            raise DriverError(self._code_of(error), what) from error

    def _code_of(self, error: Exception) -> int:
        message = str(error)
        for code in (*FAULTS, 2, 1, 98, 200, 209, 218, 500):
            status, text = cu.cuGetErrorString(cu.CUresult(code))
            if int(status) == 0 and text and text.decode() in message:
                return code
        return int(cu.cuCtxSynchronize()[0]) or 999

    def load(self, cubin: bytes, symbol: str, smem_bytes: int) -> Function:
        module = self._guarded("module_from_buffer", self._cuda.module_from_buffer, cubin)
        kernel = self._guarded("get_function", module.get_function, symbol)
        if smem_bytes > DEFAULT_DYNAMIC_SMEM:
            attribute = self._cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._guarded("set_attribute", kernel.set_attribute, attribute, smem_bytes)
        return Function(module, kernel, cubin, symbol)

    def allocate(self, nbytes: int) -> int:
        allocation = self._guarded("mem_alloc", self._cuda.mem_alloc, max(1, nbytes))
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    def free(self, address: int) -> None:
        self._guarded("free", self._allocations.pop(address).free)

    def upload(self, address: int, data: Bytes) -> None:
        if data.nbytes:
            self._guarded("memcpy_htod", self._cuda.memcpy_htod, address, data)

    def download(self, data: Bytes, address: int) -> None:
        if data.nbytes:
            self._guarded("memcpy_dtoh", self._cuda.memcpy_dtoh, data, address)

    def launch(
        self, function: Function, grid: Dim3, block: Dim3, smem_bytes: int, arguments: Sequence["int | bytes"]
    ) -> None:
        packed = _packed(arguments)
        if packed is None:
            _launch_raw(function, grid, block, smem_bytes, arguments, self.stream)
            return
        self._guarded("launch", function.kernel._launch_kernel, grid, block, packed, smem_bytes, self._stream)


class CoreDriver:
    """cuda-core: context, stream, device code and launches; it has no copies from plain host memory, cuda-bindings has."""

    def __init__(self) -> None:
        try:
            import cuda.core as core

            core.ObjectCode  # noqa: B018 - before 1.0 the names live elsewhere
        except (ImportError, AttributeError):
            import cuda.core.experimental as core
        self._core = core

    def open(self, index: int) -> None:
        self._device = self._core.Device(index)
        self._device.set_current()
        self._stream = self._device.create_stream()
        self._scalars = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

    @property
    def stream(self) -> int:
        return int(self._stream.handle)

    def _guarded(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            code = _code_in(str(error))
            if code is None:
                raise
            raise DriverError(code, what) from error

    def load(self, cubin: bytes, symbol: str, smem_bytes: int) -> Function:
        module = self._core.ObjectCode.from_cubin(cubin)
        kernel = self._guarded("get_kernel", module.get_kernel, symbol)
        if smem_bytes > DEFAULT_DYNAMIC_SMEM:
            handle = kernel._handle
            if isinstance(handle, cu.CUkernel):
                handle = ask(cu.cuKernelGetFunction, handle)
            allow_dynamic_smem(handle, smem_bytes)
        return Function(module, kernel, cubin, symbol)

    def allocate(self, nbytes: int) -> int:
        return int(ask(cu.cuMemAlloc, max(1, nbytes)))

    def free(self, address: int) -> None:
        ask(cu.cuMemFree, address)

    def upload(self, address: int, data: Bytes) -> None:
        if data.nbytes:
            ask(cu.cuMemcpyHtoD, address, data.ctypes.data, data.nbytes)

    def download(self, data: Bytes, address: int) -> None:
        if data.nbytes:
            ask(cu.cuMemcpyDtoH, data.ctypes.data, address, data.nbytes)

    def launch(
        self, function: Function, grid: Dim3, block: Dim3, smem_bytes: int, arguments: Sequence["int | bytes"]
    ) -> None:
        if any(isinstance(argument, bytes) and len(argument) not in self._scalars for argument in arguments):
            _launch_raw(function, grid, block, smem_bytes, arguments, self.stream)
            return
        values = [a if isinstance(a, int) else np.frombuffer(a, self._scalars[len(a)])[0] for a in arguments]
        config = self._core.LaunchConfig(grid=grid, block=block, shmem_size=smem_bytes)
        self._guarded("launch", self._core.launch, self._stream, config, function.kernel, *values)


def _code_in(message: str) -> int | None:
    for result in cu.CUresult:
        if result.name in message and f"{result.name}_" not in message:
            return int(result)
    return None


DRIVERS: dict[str, Callable[[], Driver]] = {"pycuda": PycudaDriver, "cuda-core": CoreDriver}


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
    """A pointer argument as the parent describes it; `offset` is its place in the arena."""

    name: str
    offset: int
    nbytes: int
    itemsize: int
    writable: bool


class Runner:
    """The context and everything in it."""

    def __init__(self, kind: str, index: int, arena_fd: int) -> None:
        ask(cu.cuInit, 0)
        self.kind = kind
        self.index = index
        self.device = ask(cu.cuDeviceGet, index)
        self.driver = DRIVERS[kind]()
        self.opened = False
        self.arena_fd = arena_fd
        self._arena: mmap.mmap | None = None
        self._view: Bytes = np.empty(0, np.uint8)
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
        bus_id = ask(cu.cuDeviceGetPCIBusId, 32, self.device)
        return {
            "name": name.split(b"\0")[0].decode(errors="replace"),
            "bus_id": bus_id.split(b"\0")[0].decode(errors="replace"),
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
        }

    def _open(self) -> None:
        if self.opened:
            return
        self.driver.open(self.index)
        # No lines may be kept in the L2 across launches: a kernel that pins its data would look faster than it is.
        status = cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)[0]
        if int(status) != 0:
            log.info("the size of the persisting L2 stays as it is: %s", error_name(int(status)))
        if self.attribute("VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED"):
            self._granularity = int(
                ask(
                    cu.cuMemGetAllocationGranularity,
                    self._allocation_property(),
                    cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM,
                )
            )
        self.opened = True

    def _map_arena(self, nbytes: int) -> Bytes:
        if nbytes > self._view.nbytes:
            self._arena = mmap.mmap(self.arena_fd, nbytes)
            self._view = np.frombuffer(self._arena, np.uint8)
        return self._view

    def _cubin(self, params: Mapping[str, Any]) -> bytes:
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

    def _mapped_span(self, nbytes: int, itemsize: int, right: bool) -> Span:
        """A buffer whose one end meets unmapped addresses, so that an access past it faults at once.

        Pages are of the card's granularity (2 MB), so only one end can meet them; the band at the other end, and the
        few bytes that alignment leaves, are watched by canaries. On both sides a whole page stays unmapped.
        """
        page = self._granularity
        size = -(-(nbytes + MINIMUM_BAND_BYTES) // page) * page
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
            address -= address % (
                itemsize if itemsize > BASE_ALIGNMENT and itemsize & (itemsize - 1) == 0 else BASE_ALIGNMENT
            )
            return Span(address, nbytes, min(BAND_BYTES, address - start), start + size - address - nbytes, release)
        return Span(start, nbytes, 0, min(BAND_BYTES, size - nbytes), release)

    def _banded_span(self, nbytes: int, band: int) -> Span:
        base = self.driver.allocate(nbytes + 2 * band)
        return Span(base + band, nbytes, band, band, lambda: self.driver.free(base))

    def _span(self, order: BufferOrder, layout: str) -> Span:
        if layout in ("right", "left") and self._granularity:
            try:
                span = self._mapped_span(order.nbytes, order.itemsize, layout == "right")
            except DriverError as error:
                if error.code in STICKY or error.code == OUT_OF_MEMORY:
                    raise
                log.warning("guard pages are not to be had (%s): canary bands alone are used", error)
                self._granularity = 0
                return self._span(order, layout)
        else:
            span = self._banded_span(order.nbytes, WIDE_BAND_BYTES if layout == "wide" else BAND_BYTES)
        for address, size in ((span.address - span.before, span.before), (span.address + span.nbytes, span.after)):
            if size:
                ask(cu.cuMemsetD8Async, address, CANARY, size, self.driver.stream)
        return span

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
        try:
            self._open()
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
        smem_bytes = int(launch["smem_bytes"])
        function = self.driver.load(self._cubin(params), params["symbol"], smem_bytes)
        spans: list[tuple[BufferOrder, Span]] = []
        arguments: list[int | bytes] = []
        lost = False
        try:
            for argument in launch["arguments"]:
                if "data" in argument:
                    arguments.append(bytes.fromhex(argument["data"]))
                    continue
                order = BufferOrder(
                    argument["name"], argument["offset"], argument["nbytes"], argument["itemsize"], argument["writable"]
                )
                span = self._span(order, launch["layout"])
                spans.append((order, span))
                self.driver.upload(span.address, arena[order.offset : order.offset + order.nbytes])
                arguments.append(span.address)
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
                place = arena[order.offset : order.offset + order.nbytes]
                if order.writable:
                    self.driver.download(place, span.address)
                    continue
                after = np.empty(order.nbytes, np.uint8)
                self.driver.download(after, span.address)
                if not np.array_equal(after, place):
                    first = int(np.flatnonzero(after != place)[0]) // order.itemsize
                    return {
                        "fault": {
                            "code": 0,
                            "hazard": "mutated_input",
                            "where": f"{order.name}[{first}]",
                            "sticky": False,
                        }
                    }
            return {"elapsed_ms": elapsed_ms}
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

    # Timing

    def time(self, params: Any, job: process.Job) -> Any:
        """Replay graphs of launches over rotated buffers; see `Stopwatch`. Faults are answers, as in `run`."""
        stopwatch = None
        try:
            self._open()
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


def _version_of(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


RESTORED = ("io",)
"""Roles of buffers that a kernel finds with their first values at every launch, also while it is timed."""
POISONED = ("out", "tmp")
"""Roles of buffers whose first values are nobody's."""


@define
class _Buffer:
    """One pointer argument in all rotated sets. `own` buffers (written ones) exist once for each program."""

    name: str
    role: str
    nbytes: int
    stride: int
    offsets: list[int]
    slabs: list[int]
    """Device address of set 0: of the only copy for an input, of each program's copy for a written buffer."""
    pristine: list[int]
    """For restored buffers: the device address of the untouched values, one per seed."""

    def address(self, program: int, index: int) -> int:
        return self.slabs[program if len(self.slabs) > 1 else 0] + index * self.stride


class Stopwatch:
    """Times one or two programs and an empty kernel of the same launch shape, interleaved, on rotated buffers.

    Cold: there are R sets of buffers, together at least `l2_factor` times the L2, used in turn, so that a launch finds
    nothing of its data in the cache. A sample is the replay of a CUDA graph of K launches, K a multiple of R; where
    all R launches would take too long for one sample, each sample replays the next K of them. Hot: R = 1.
    Buffers that a kernel reads and writes are restored before each replay, outside the timed events; then K = R, so a
    set is used once per replay. Outputs are poisoned before every batch of samples and handed back after the last.
    """

    BATCH = 6

    def __init__(self, runner: Runner, params: Mapping[str, Any], job: process.Job) -> None:
        self.runner = runner
        self.driver = runner.driver
        self.stream = runner.driver.stream
        self.params = params
        self.job = job
        self.grid: Dim3 = tuple(params["grid"])
        self.block: Dim3 = tuple(params["block"])
        self.smem_bytes = int(params["smem_bytes"])
        self.l2_bytes = runner.attribute("L2_CACHE_SIZE")
        self.releases: list[Callable[[], None]] = []
        self.programs: list[Function] = []
        self.buffers: list[_Buffer] = []
        self.seeds = int(params["seeds"])
        self.has_io = any(a.get("role") in RESTORED and a["nbytes"] for a in params["arguments"])
        self.lost = False

    # Setting up

    def measure(self, idle_s: float) -> Any:
        monitor = Monitor(runner_bus_id(self.runner))
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

    def _load(self) -> None:
        for program in self.params["programs"]:
            self.programs.append(self.driver.load(self.runner._cubin(program), program["symbol"], self.smem_bytes))
        module = ask(cu.cuModuleLoadData, EMPTY_PTX)
        self.empty = ask(cu.cuModuleGetFunction, module, b"dice_empty")
        allow_dynamic_smem(self.empty, self.smem_bytes)
        # Code is loaded at its first launch, which must not happen while a graph is captured.
        ask(cu.cuLaunchKernel, self.empty, 1, 1, 1, 1, 1, 1, 0, self.stream, 0, 0)

    def _sets(self) -> tuple[int, bool]:
        """How many rotated sets, and whether that makes the runs cold."""
        pointers = [a for a in self.params["arguments"] if "data" not in a]
        set_bytes = sum(a["nbytes"] for a in pointers)
        if not self.params["cold"] or not set_bytes:
            return 1, False
        wanted = int(self.params["l2_factor"]) * self.l2_bytes
        sets = 1 if set_bytes >= wanted else -(-wanted // set_bytes) + 1
        programs = len(self.params["programs"])
        footprint = sum(a["nbytes"] * (1 if a["role"] == "in" else programs) for a in pointers)
        free_bytes, _ = ask(cu.cuMemGetInfo)
        most = min(int(self.params["most_sets"]), int(free_bytes) // 2 // footprint)
        if sets > most:
            return 1, False
        if self.has_io:
            # A set is used once per sample then, so more sets make the sample long enough to be timed well.
            fastest_us = 1.0 + set_bytes / float(self.params["peak_bytes_per_us"])
            sets = min(most, max(sets, math.ceil(RESTORED_SAMPLE_US / fastest_us)))
        return sets, True

    def _fill(self, sets: int) -> None:
        arena = self.runner._view
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

    def _arguments(self, program: int, index: int) -> list["int | bytes"]:
        buffers = iter(self.buffers)
        seed = index % self.seeds
        return [
            bytes.fromhex(a["data"][seed]) if "data" in a else next(buffers).address(program, index)
            for a in self.params["arguments"]
        ]

    def _restore(self, program: int, indices: Sequence[int]) -> None:
        for buffer in self.buffers:
            if buffer.role in RESTORED and buffer.nbytes:
                for index in indices:
                    source = buffer.pristine[index % self.seeds]
                    ask(cu.cuMemcpyDtoDAsync, buffer.address(program, index), source, buffer.nbytes, self.stream)

    def _poison(self, sets: int) -> None:
        for buffer in self.buffers:
            if buffer.role in POISONED and buffer.nbytes:
                for slab in buffer.slabs:
                    ask(cu.cuMemsetD8Async, slab, OUTPUT_POISON, buffer.stride * sets, self.stream)

    def _launch(self, program: int, index: int) -> None:
        self.driver.launch(
            self.programs[program], self.grid, self.block, self.smem_bytes, self._arguments(program, index)
        )

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
        return executable

    def _program_graph(self, program: int, indices: Sequence[int]) -> Any:
        def queue() -> None:
            for index in indices:
                self._launch(program, index)

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

    def _finish(self) -> None:
        deadline = time.monotonic() + float(self.params["deadline_s"])
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
        self._restore(program, [0])
        pair = self._event(), self._event()
        ask(cu.cuEventRecord, pair[0], self.stream)
        self._launch(program, 0)
        ask(cu.cuEventRecord, pair[1], self.stream)
        self._finish()
        single_us = _elapsed_us(pair)
        if single_us > 500:
            return single_us
        # Restored buffers allow one launch each: a second one could find indices of the first in them.
        indices = [index % sets for index in range(min(sets, 20) if self.has_io else 20)]
        graph = self._program_graph(program, indices)
        replays = []
        for _ in range(3):
            self._restore(program, indices)
            pair = self._timed(graph, pair)
            self._finish()
            replays.append(_elapsed_us(pair))
        return max(0.3, (min(replays) - EVENTS_US) / len(indices))

    def _measure(self, monitor: "Monitor") -> Any:
        self._load()
        sets, cold = self._sets()
        self._fill(sets)
        self._poison(sets)
        self._finish()
        estimates = [self._estimate_us(program, sets) for program in range(len(self.programs))]
        estimate = min(estimates)
        if max(estimates) > SLOWEST_US:
            return {"declined": f"one launch takes {max(estimates) / 1e6:.1f} s, too long to time again and again"}
        plan = plan_samples(sets, estimate, max(estimates), self.has_io, len(self.programs), self.params)
        graphs = [
            [self._program_graph(program, indices) for indices in plan.chunks] for program in range(len(self.programs))
        ]
        per_sample = len(plan.chunks[0])
        gap_count = max(64, min(per_sample, 1024))
        empty = self._empty_graph(gap_count, self.grid, self.block, self.smem_bytes)
        floors = [self._empty_graph(count, (1, 1, 1), (32, 1, 1), 0) for count in (512, 1024)]
        flush = self._allocate(2 * self.l2_bytes) if self.has_io and cold and len(plan.chunks) > 1 else None
        self._warm_up(graphs, plan, estimate)
        batch = max(1, min(self.BATCH, int(1e6 / (max(estimates) * per_sample * len(self.programs)))))

        events: dict[Any, Any] = {}
        samples: list[list[float]] = [[] for _ in self.programs]
        gaps: list[float] = []
        batches: list[dict[str, Any]] = []
        done = 0
        while done < plan.samples:
            count = min(batch, plan.samples - done)
            self._poison(sets)
            for step in range(count):
                chunk = (done + step) % len(plan.chunks)
                for program in range(len(self.programs)):
                    self._restore(program, plan.chunks[chunk])
                    if flush is not None:
                        ask(cu.cuMemsetD8Async, flush, step, 2 * self.l2_bytes, self.stream)
                    events[step, program] = self._timed(graphs[program][chunk], events.get((step, program)))
                events[step, "empty"] = self._timed(empty, events.get((step, "empty")))
            # Read while the card works: between batches the clock may already fall.
            reading = monitor.reading()
            self._finish()
            for step in range(count):
                for program in range(len(self.programs)):
                    launches = len(plan.chunks[(done + step) % len(plan.chunks)])
                    samples[program].append(_elapsed_us(events[step, program]) / launches)
                gaps.append(_elapsed_us(events[step, "empty"]) / gap_count)
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
            "busy": monitor.busy_reason(math.inf, since_start=True),
            "outputs": outputs,
            "hot_us": self._hot(estimates[0]) if cold and self.params["hot"] and not self.has_io else [],
        }

    def _hot(self, estimate_us: float) -> list[float]:
        """Times per launch of the first program with its data in the cache: again and again on one set."""
        count = max(1, min(int(self.params["most_launches"]), math.ceil(float(self.params["target_us"]) / estimate_us)))
        graph = self._program_graph(0, [0] * count)
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

    def _warm_up(self, graphs: Sequence[Sequence[Any]], plan: "Plan", estimate_us: float) -> None:
        """Keep the card busy for about 50 ms: an idle card needs that long to reach its working clock."""
        expected_us = estimate_us * len(plan.chunks[0]) * len(graphs)
        for _ in range(max(1, min(200, int(50_000 / expected_us)))):
            for program, executables in enumerate(graphs):
                self._restore(program, plan.chunks[0])
                ask(cu.cuGraphLaunch, executables[0], self.stream)
        self._finish()

    # Outputs of the timed runs

    def _collect(self, plan: "Plan", done: int, batch: int) -> list[dict[str, Any]]:
        """Put what the last replays wrote into the arena: once for each program and seed, and every set that differs.

        Sets of one seed have equal inputs, so a deterministic kernel gives equal outputs and one copy is enough.
        """
        offset = int(self.params["outputs_offset"])
        room = int(self.params["arena_bytes"])
        arena = self.runner._view
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
    """`chunks[i % len(chunks)]` are the sets that sample i launches, in order."""

    chunks: tuple[tuple[int, ...], ...]
    samples: int


def plan_samples(
    sets: int, fastest_us: float, slowest_us: float, has_io: bool, programs: int, params: Mapping[str, Any]
) -> Plan:
    """How many launches make a sample, and how many samples.

    A sample should last about `target_us`, because events tell half a microsecond apart; K and R belong together:
    launches come in whole rounds of the sets, or a round is cut into chunks that samples take in turn.
    """
    target_us = float(params["target_us"])
    launches = max(1, min(int(params["most_launches"]), math.ceil(target_us / fastest_us)))
    if launches >= sets and not has_io:
        rounds = -(-launches // sets)
        chunks = [tuple(index for _ in range(rounds) for index in range(sets))]
    elif sets * slowest_us <= 5 * target_us or launches >= sets:
        chunks = [tuple(range(sets))]
    else:
        chunks = [tuple(range(start, min(sets, start + launches))) for start in range(0, sets, launches)]
        if len(chunks) > 1 and len(chunks[-1]) < launches:
            # Samples of one size only, so that their fixed costs weigh the same: the last chunk takes from the front.
            chunks[-1] = tuple(range(sets - launches, sets))
    round_us = max(len(chunk) for chunk in chunks) * slowest_us * (programs + 0.5)
    soft, hard = (int(float(params[name]) * 1e6 / round_us) for name in ("budget_s", "most_budget_s"))
    samples = min(int(params["most_samples"]), max(soft, min(hard, int(params["least_samples"]))))
    return Plan(tuple(chunks), max(5, samples))


def _elapsed_us(pair: Any) -> float:
    return float(ask(cu.cuEventElapsedTime, pair[0], pair[1])) * 1000


def runner_bus_id(runner: Runner) -> str:
    bus_id: bytes = ask(cu.cuDeviceGetPCIBusId, 32, runner.device)
    return bus_id.split(b"\0")[0].decode()


class Monitor:
    """Clocks, throttling and other users of the card, from NVML. What NVML does not tell is left out, never guessed."""

    BUSY_PERCENT = 5

    def __init__(self, bus_id: str) -> None:
        self._nvml: Any = None
        self._started_us = int(time.time() * 1e6)
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
            self._nvml = pynvml
        except Exception as error:
            log.info("NVML does not answer: %s", error)

    def _quietly(self, call: Callable[[], Any]) -> Any:
        if self._nvml is None:
            return None
        try:
            return call()
        except Exception as error:
            log.debug("NVML: %s", error)
            return None

    def reading(self) -> dict[str, Any]:
        """The SM clock in MHz and the bits of the reasons that hold it down; None where NVML has no answer."""
        nvml = self._nvml
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )
        return {
            "clock_mhz": self._quietly(lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
            "throttle": None if reasons is None else self._quietly(lambda: int(reasons(self._handle))),
        }

    def busy_reason(self, idle_s: float, since_start: bool = False) -> str | None:
        """One sentence if somebody else computes on the card; `idle_s` is how long this process has not.

        Per-process figures decide where the driver gives them. Otherwise the card's utilization does, which counts
        this process too and looks back about a second, so it is only asked after that long a rest.
        """
        nvml = self._nvml
        after_us = self._started_us if since_start else self._started_us - 1_000_000
        rows = self._quietly(lambda: nvml.nvmlDeviceGetProcessUtilization(self._handle, after_us)) or []
        processes = self._quietly(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) or []
        known = {process.pid for process in processes}
        for row in rows:
            # In a container the driver may count processes by numbers of another name space; then ours is not listed
            # under its own and no row can be told to be somebody else's.
            if os.getpid() in known and row.pid != os.getpid() and row.smUtil > self.BUSY_PERCENT:
                return f"the GPU is busy: process {row.pid} uses {row.smUtil} % of it"
        if since_start or idle_s < 1.5:
            return None
        rates = self._quietly(lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle))
        if rates is not None and rates.gpu > 3 * self.BUSY_PERCENT:
            return f"the GPU is busy: {rates.gpu} % of it is in use by others"
        return None


def main() -> int:
    kind, index, arena_fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        runner = Runner(kind, index, arena_fd)
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
