"""Two libraries that load and launch device code, behind one small protocol: pycuda and cuda-core.

What pycuda lacks (graphs, memory mapped at an address, limits) goes through cuda-bindings on the same primary context,
which both share. Imported by the runner child only: this file is where CUDA begins.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import field, frozen
from cuda.bindings import driver as cu
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Dim3 = tuple[int, int, int]

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
NOT_FOUND = 500
"""No kernel of that name is in the code."""
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
    """The same kernel and its module as cuda-bindings loads them, once that is needed."""


class Driver(Protocol):
    """What the two libraries must do. Addresses are integers, memory is plain host bytes."""

    def open(self, index: int) -> None:
        """Make the primary context of a device current, and a stream in it."""

    @property
    def stream(self) -> int:
        """The raw handle of the stream that everything runs on."""

    def load(self, cubin: bytes, symbol: str, smem_bytes: int) -> Function:
        """Load device code, allowed to use `smem_bytes` of dynamic shared memory. Raises `DriverError`."""

    def get_ready(self, function: Function, arguments: Sequence["int | bytes"], smem_bytes: int) -> None:
        """Decide how a kernel is launched with arguments like these, whatever is in them.

        Comes before the variables are looked up, because what a library cannot launch is loaded once more.
        """

    def variable_address(self, function: Function, symbol: str) -> int | None:
        """Where a variable of a kernel's code lies, by its mangled name; None when the driver does not know it."""

    def allocate(self, nbytes: int) -> int: ...

    def free(self, address: int) -> None: ...

    def upload(self, address: int, data: Bytes) -> None: ...

    def download(self, data: Bytes, address: int) -> None: ...

    def launch(
        self, function: Function, grid: Dim3, block: Dim3, smem_bytes: int, arguments: Sequence["int | bytes"]
    ) -> None:
        """Queue a launch: an int is an address, bytes are a scalar. Works under stream capture too."""


def blank_arguments(arguments: Iterable[Mapping[str, Any]]) -> list["int | bytes"]:
    """Arguments of the sizes of those that travel, with nothing in them; one of several seeds tells for all."""
    blank: list[int | bytes] = []
    for argument in arguments:
        if "data" in argument:
            digits = argument["data"]
            blank.append(bytes(len(digits if isinstance(digits, str) else digits[0]) // 2))
        elif argument.get("passed", True):
            blank.append(0)
    return blank


def with_addresses(data: bytes, pointers: Iterable[tuple[int, str, int]], addresses: Mapping[str, int]) -> bytes:
    """A by-value argument with the addresses of buffers filled in, see `launch.Pointer`."""
    filled = bytearray(data)
    for offset, buffer, byte_offset in pointers:
        filled[offset : offset + 8] = (addresses[buffer] + byte_offset).to_bytes(8, "little")
    return bytes(filled)


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
    _load_raw(function, smem_bytes)
    values = [
        ctypes.create_string_buffer(data, len(data))
        for data in (a.to_bytes(8, "little") if isinstance(a, int) else a for a in arguments)
    ]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
    ask(cu.cuLaunchKernel, function.raw[0], *grid, *block, smem_bytes, stream, ctypes.addressof(pointers), 0)


def _load_raw(function: Function, smem_bytes: int) -> None:
    if not function.raw:
        module = ask(cu.cuModuleLoadData, function.cubin)
        function.raw.extend((ask(cu.cuModuleGetFunction, module, function.symbol.encode()), module))
        allow_dynamic_smem(function.raw[0], smem_bytes)


def _raw_variable(function: Function, symbol: str) -> int | None:
    """Where a variable lies in the code as cuda-bindings has loaded it."""
    try:
        address, _ = ask(cu.cuModuleGetGlobal, function.raw[1], symbol.encode())
    except DriverError:
        return None
    return int(address)


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
        for code in (*FAULTS, OUT_OF_MEMORY, INVALID_VALUE, *sorted(UNLOADABLE), NOT_FOUND):
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

    def get_ready(self, function: Function, arguments: Sequence["int | bytes"], smem_bytes: int) -> None:
        if _packed(arguments) is None:
            _load_raw(function, smem_bytes)

    def variable_address(self, function: Function, symbol: str) -> int | None:
        if function.raw:
            return _raw_variable(function, symbol)
        try:
            address, _ = self._guarded("get_global", function.module.get_global, symbol)
        except DriverError:
            return None
        return int(address)

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
        packed = None if function.raw else _packed(arguments)
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

    def get_ready(self, function: Function, arguments: Sequence["int | bytes"], smem_bytes: int) -> None:
        if self._unusual(arguments):
            _load_raw(function, smem_bytes)

    def variable_address(self, function: Function, symbol: str) -> int | None:
        if function.raw:
            return _raw_variable(function, symbol)
        handle = function.kernel._handle
        try:
            if isinstance(handle, cu.CUkernel):
                address, _ = ask(cu.cuLibraryGetGlobal, ask(cu.cuKernelGetLibrary, handle), symbol.encode())
            else:
                address, _ = ask(cu.cuModuleGetGlobal, ask(cu.cuFuncGetModule, handle), symbol.encode())
        except DriverError:
            return None
        return int(address)

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
        if function.raw or self._unusual(arguments):
            _launch_raw(function, grid, block, smem_bytes, arguments, self.stream)
            return
        values = [a if isinstance(a, int) else np.frombuffer(a, self._scalars[len(a)])[0] for a in arguments]
        config = self._core.LaunchConfig(grid=grid, block=block, shmem_size=smem_bytes)
        self._guarded("launch", self._core.launch, self._stream, config, function.kernel, *values)

    def _unusual(self, arguments: Sequence["int | bytes"]) -> bool:
        """Some argument is no number that the library knows."""
        return any(isinstance(argument, bytes) and len(argument) not in self._scalars for argument in arguments)


def _code_in(message: str) -> int | None:
    for result in cu.CUresult:
        if result.name in message and f"{result.name}_" not in message:
            return int(result)
    return None


MODULES = {"pycuda": "pycuda.driver", "cuda-core": "cuda.core"}
"""What a driver imports."""
DRIVERS: dict[str, Callable[[], Driver]] = {"pycuda": PycudaDriver, "cuda-core": CoreDriver}
