"""What the interpreter of host code knows of the CUDA runtime, the C library and the containers.

A GPU's properties are those of the H100 family (compute capability 9.0, CUDA C Programming Guide, "Compute
Capabilities"): a program that asks for them must work for any answer, and what depends on them is never certain.
"""

import math
import re
from collections.abc import Callable

from dice_lsp.source.expressions import ExpressionError, canonical_type, evaluate
from dice_lsp.source.host_machine import Machine
from dice_lsp.source.host_tree import Tree
from dice_lsp.source.host_values import (
    FLOATING,
    NOTHING,
    Address,
    Array,
    Block,
    FunctionName,
    Lambda,
    Number,
    Pointer,
    Spot,
    Struct,
    Text,
    Thing,
    Unknown,
    Value,
    binary,
    build,
    common_type,
    constant,
    convert,
    opaque,
    rounded,
    type_width,
    unknown_term,
    variable,
    whole,
)

CONSTANTS: dict[str, Value] = {
    "cudaSuccess": whole(0),
    "CUDA_SUCCESS": whole(0),
    "CUBLAS_STATUS_SUCCESS": whole(0),
    "CURAND_STATUS_SUCCESS": whole(0),
    "CUSPARSE_STATUS_SUCCESS": whole(0),
    "NVRTC_SUCCESS": whole(0),
    "nullptr": Pointer(None, constant(0)),
    "NULL": Pointer(None, constant(0)),
    "true": whole(1, "bool"),
    "false": whole(0, "bool"),
    "warpSize": whole(32),
}

_DEVICE: dict[str, int] = {
    "multiProcessorCount": 132, "maxThreadsPerMultiProcessor": 2048, "maxThreadsPerBlock": 1024, "warpSize": 32,
    "major": 9, "minor": 0, "sharedMemPerBlock": 49152, "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472, "regsPerBlock": 65536, "regsPerMultiprocessor": 65536,
    "maxBlocksPerMultiProcessor": 32, "l2CacheSize": 52428800, "totalConstMem": 65536, "unifiedAddressing": 1,
    "managedMemory": 1, "concurrentManagedAccess": 1, "concurrentKernels": 1, "cooperativeLaunch": 1,
    "canMapHostMemory": 1, "integrated": 0, "asyncEngineCount": 3, "streamPrioritiesSupported": 1, "ECCEnabled": 1,
    "tccDriver": 0, "pageableMemoryAccess": 1, "textureAlignment": 512, "memPitch": 2147483647,
    "computeMode": 0, "deviceOverlap": 1, "kernelExecTimeoutEnabled": 0, "memoryBusWidth": 5120, "isMultiGpuBoard": 0,
    "hostNativeAtomicSupported": 0, "globalL1CacheSupported": 1, "localL1CacheSupported": 1,
}  # fmt: skip
_ATTRIBUTES = {
    "cudaDevAttrMultiProcessorCount": 132, "cudaDevAttrMaxThreadsPerBlock": 1024, "cudaDevAttrWarpSize": 32,
    "cudaDevAttrMaxThreadsPerMultiProcessor": 2048, "cudaDevAttrComputeCapabilityMajor": 9,
    "cudaDevAttrComputeCapabilityMinor": 0, "cudaDevAttrMaxSharedMemoryPerBlock": 49152,
    "cudaDevAttrMaxSharedMemoryPerBlockOptin": 232448, "cudaDevAttrMaxSharedMemoryPerMultiprocessor": 233472,
    "cudaDevAttrCooperativeLaunch": 1, "cudaDevAttrManagedMemory": 1, "cudaDevAttrConcurrentManagedAccess": 1,
    "cudaDevAttrMemoryPoolsSupported": 1, "cudaDevAttrMaxBlockDimX": 1024, "cudaDevAttrMaxGridDimX": 2147483647,
    "cudaDevAttrMaxRegistersPerBlock": 65536, "cudaDevAttrUnifiedAddressing": 1, "cudaDevAttrL2CacheSize": 52428800,
    "cudaDevAttrPageableMemoryAccess": 1, "cudaDevAttrIntegrated": 0, "cudaDevAttrCanMapHostMemory": 1,
}  # fmt: skip

_ALLOCATE = {"cudaMalloc": 1, "cudaMallocManaged": 1, "cudaMallocHost": 1, "cudaHostAlloc": 1, "cudaMallocAsync": 1,
             "cudaMallocFromPoolAsync": 1, "hipMalloc": 1, "cuMemAlloc": 1, "cuMemAlloc_v2": 1, "cuMemAllocManaged": 1,
             "cuMemAllocHost": 1, "cudaMallocArray": -1, "cudaMalloc3DArray": -1, "cudaMalloc3D": -1}  # fmt: skip
_ONLY_READS = re.compile(
    r"(?:printf|fprintf|puts|free|delete|exit|cuda(?:Memset|Free|EventRecord|EventSync|Stream|Func|Graph\w*Launch|Device(?:Sync|Reset|Set)|"
    r"Peek|GetLast|GetError|HostUnregister|HostRegister|BindTexture|SetDevice|Profiler)\w*|sdk\w*Timer\w*|assert|srand\w*|"
    r"cublas\w+|curand\w+|cufft\w+|nvtx\w+|check\w*|CHECK\w*|fflush|fclose|sleep|usleep|__cudaCheck\w*)$"
)
_STATUS = re.compile(
    r"(?:cuda|cublas|cufft|curand|cusparse|cusolver|cudnn|nccl|nvrtc|hip|NVRTC)[A-Z]\w*$|cu[A-Z]\w*$|__checkCuda\w*$"
)
_C_LIBRARY = re.compile(
    r"(?:mem(?:cpy|set|move|cmp)|str\w+|f(?:open|read|write|seek|gets|scanf|printf)|s?n?printf|sscanf|scanf|"
    r"s?rand|time|clock|gettimeofday|omp_\w+|pthread_\w+|MPI_\w+|sdk\w+|glut?\w+|get\w+)$"
)
_ENDS = {"exit", "abort", "_exit", "_Exit", "quick_exit", "terminate", "std::terminate", "std::exit", "std::abort"}
_MATH: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt, "sqrtf": math.sqrt, "log2": math.log2, "log2f": math.log2, "log": math.log, "logf": math.log,
    "log10": math.log10, "exp": math.exp, "expf": math.exp, "exp2": lambda v: 2.0**v, "exp2f": lambda v: 2.0**v,
    "cbrt": lambda v: math.copysign(abs(v) ** (1 / 3), v), "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "sinf": math.sin, "cosf": math.cos, "rsqrtf": lambda v: 1 / math.sqrt(v), "fabs": abs, "fabsf": abs,
}  # fmt: skip
_ROUND = {"ceil": "ceil", "ceilf": "ceil", "floor": "floor", "floorf": "floor", "trunc": "trunc", "truncf": "trunc",
          "round": "round", "roundf": "round", "lround": "round", "rint": "round"}  # fmt: skip
_ARITHMETIC = re.compile(
    r"(?:float|double|int|unsigned|(?:a?(?:sin|cos|tan)h?|atan2|pow|sqrt|rsqrt|cbrt|exp[2m1]*|log\d*p?|erfc?|fabs|abs|fmod|fma|"
    r"fmin|fmax|min|max|MIN|MAX|coshf|tanhf|floor|ceil|round|lgamma|tgamma|copysign|isnan|isinf|isfinite)f?l?)$"
)
_FLAGS = ("checkCmdLineFlag", "getCmdLineArgumentString", "sdkCheckCmdLineFlag")
_FLOAT_TEXT = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?P<suffix>[fFlL]?)$")


def number(text: str) -> Number | Unknown:
    """A literal: `1ULL` is an `unsigned long long`, `0.5f` a `float`."""
    text = text.replace("'", "")
    try:
        value = evaluate(text.rstrip("uUlLzZ") if not text.lower().startswith("0x") else text.rstrip("uUlL"))
    except ExpressionError:
        match = _FLOAT_TEXT.match(text)
        if match is None:
            return Unknown(f"`{text}`")
        plain = text.rstrip("fFlL") if match["suffix"] else text
        return Number(constant(float(plain)), "float" if match["suffix"] in ("f", "F") else "double")
    suffix = re.search(r"[uUlLzZ]*$", text)
    letters = suffix[0].lower() if suffix else ""
    if text[-1:] in "KMG":
        return Unknown(f"`{text}`")
    wide = "l" in letters or "z" in letters or value >= 1 << 31
    ctype = {(False, False): "int", (True, False): "unsigned int", (False, True): "long", (True, True): "unsigned long"}
    kind = ctype["u" in letters or "z" in letters, wide]
    if kind == "long" and text.lower().startswith("0x") and value < 1 << 32 and "l" not in letters:
        kind = "unsigned int"
    return Number(constant(value), kind)


def device_property(name: str) -> Value:
    """A member of `cudaDeviceProp`."""
    if name not in _DEVICE:
        return Unknown(f"the GPU's `{name}`")
    return Number(variable(name, _DEVICE[name], assumed=True), "int")


def is_arithmetic(name: str) -> bool:
    """Whether a function only computes a number from numbers."""
    return name in _MATH or name in _ROUND or _ARITHMETIC.match(name) is not None


def only_reads(name: str) -> bool:
    """Whether a function of the runtime is known to leave its arguments' targets as they are."""
    return _ONLY_READS.match(name) is not None


def takes_references(name: str) -> bool:
    """Whether a function may take an argument by reference: none with C's linkage can."""
    return not (only_reads(name) or returns_status(name) or _C_LIBRARY.match(name) or name.isupper())


def returns_status(name: str) -> bool:
    """Whether a function answers with an error code, which is taken for success."""
    return _STATUS.match(name) is not None


def call(
    machine: Machine, name: str, template: tuple[str, ...], values: tuple[Value, ...], trees: tuple[Tree, ...]
) -> Value | None:
    """A call of a function that the text does not define; None for one that is not known."""
    plain = name.rsplit("::", 1)[-1]
    if plain in _ALLOCATE:
        return _allocate(machine, plain, values)
    if plain in _ENDS:
        machine.state = None
        return NOTHING
    if plain == "assert" and values:
        _assert(machine, values[0])
        return NOTHING
    if plain in _FLAGS:
        return whole(0, "bool")
    if plain in ("getCmdLineArgumentInt", "getCmdLineArgumentFloat"):
        return whole(0)
    if plain in ("swap", "exchange") and len(trees) == 2:
        return _exchange(machine, plain, trees)
    handler = _CALLS.get(plain)
    if handler is not None:
        return handler(machine, values)
    if plain in _ROUND and values and isinstance(values[0], Number):
        result = rounded(_ROUND[plain], values[0])
        return convert(result, "long") if plain == "lround" else result
    if plain in _MATH and values and isinstance(values[0], Number):
        return _math(plain, values[0])
    if re.fullmatch(r"(?:ceil_?div|c?div_?up|idivup|div_?ceil|cdiv|divide_?up|updiv|ceildiv)", plain, re.IGNORECASE):
        if len(values) == 2:
            return _cdiv(values[0], values[1])
    if plain.startswith("make_") and (type_width(plain[5:]) or plain == "make_cudaExtent"):
        return _vector(plain[5:], values)
    return None


def _exchange(machine: Machine, name: str, trees: tuple[Tree, ...]) -> Value:
    """`std::swap(a, b)`, and `std::exchange(a, value)`, which answers what `a` was."""
    first, second = machine.spot(trees[0]), machine.spot(trees[1])
    values = machine.evaluate(trees[0]), machine.evaluate(trees[1])
    if first is not None:
        machine.write(first, values[1])
    if name == "swap" and second is not None:
        machine.write(second, values[0])
    return values[0] if name == "exchange" else NOTHING


def _assert(machine: Machine, value: Value) -> None:
    holds, number_ = machine.decide(value)
    if holds is False:
        # A program that is compiled with NDEBUG would go on, and be wrong.
        machine.state = None
    else:
        machine.assume(number_, True)


def _math(name: str, value: Number) -> Value:
    result: float | None = None
    if value.value is not None:
        try:
            result = _MATH[name](value.value)
        except (ValueError, OverflowError, ZeroDivisionError):
            result = None
    return opaque(name, value, result, "float" if name.endswith("f") and name != "f" else "double")


def _cdiv(first: Value, second: Value) -> Value:
    if not isinstance(first, Number) or not isinstance(second, Number):
        return NOTHING
    ctype = common_type(first.ctype, second.ctype)
    if ctype in FLOATING:
        return NOTHING
    return binary("/", binary("-", binary("+", first, second), whole(1)), second)


def _vector(kind: str, values: tuple[Value, ...]) -> Value:
    labels = ("width", "height", "depth") if kind == "cudaExtent" else ("x", "y", "z", "w")
    return Struct(kind, dict(zip(labels, values, strict=False)))


def _set(machine: Machine, target: Value, value: Value) -> None:
    if isinstance(target, Address):
        machine.write(Spot(target.cell, target.path), value)


def _label(machine: Machine, target: Value) -> str:
    return machine.labels.get(target.cell, "") if isinstance(target, Address) else ""


def _element(machine: Machine, target: Value) -> str:
    """The element type of the pointer variable that an allocation is stored in."""
    if not isinstance(target, Address):
        return "void"
    old = machine.read(Spot(target.cell, target.path))
    if isinstance(old, Pointer) and old.element != "void":
        return old.element
    kind = machine.resolve(machine.kinds[target.cell]) if target.cell in machine.kinds else None
    if kind is None:
        return "void"
    if not target.path or isinstance(target.path[-1], int):
        return kind.base + "*" * max(kind.pointers - 1, 0) if kind.pointers else "void"
    record = machine.record(kind.base)
    for member in record.members if record is not None else ():
        if member.name == target.path[-1]:
            inner = machine.resolve(member.kind)
            return inner.base + "*" * max(inner.pointers - 1, 0)
    return "void"


def _allocate(machine: Machine, name: str, values: tuple[Value, ...]) -> Value:
    place = _ALLOCATE[name]
    if not values:
        return whole(0)
    if place < 0:
        _set(machine, values[0], Unknown(f"`{name}(...)`"))
        return whole(0)
    size = values[place] if len(values) > place else NOTHING
    nbytes = convert(size, "size_t") if isinstance(size, Number) else None
    kind = "host" if "Host" in name else "managed" if "Managed" in name else "device"
    block = Block(_label(machine, values[0]), nbytes.term if isinstance(nbytes, Number) else None, kind)
    _set(machine, values[0], Pointer(block, constant(0), _element(machine, values[0])))
    return whole(0)


def _allocate_pitched(machine: Machine, values: tuple[Value, ...]) -> Value:
    if len(values) < 4 or not isinstance(values[2], Number) or not isinstance(values[3], Number):
        for value in values[:2]:
            _set(machine, value, Unknown("`cudaMallocPitch(...)`"))
        return whole(0)
    aligned = binary("*", binary("/", binary("+", values[2], whole(511)), whole(512)), whole(512))
    assert isinstance(aligned, Number)
    if aligned.value is not None:
        pitch = Number(variable("pitch", aligned.value, assumed=True), "size_t")
    else:
        pitch = Number(unknown_term("pitch", "the pitch that `cudaMallocPitch` chooses"), "size_t")
    _set(machine, values[1], pitch)
    total = binary("*", pitch, values[3])
    assert isinstance(total, Number)
    block = Block(_label(machine, values[0]), total.term, "device")
    _set(machine, values[0], Pointer(block, constant(0), _element(machine, values[0])))
    return whole(0)


def _malloc(machine: Machine, values: tuple[Value, ...]) -> Value:
    size = values[-1] if values else NOTHING
    return Pointer(Block("malloc", size.term if isinstance(size, Number) else None, "host"), constant(0))


def _calloc(machine: Machine, values: tuple[Value, ...]) -> Value:
    size = binary("*", values[0], values[1]) if len(values) == 2 else NOTHING
    return Pointer(Block("calloc", size.term if isinstance(size, Number) else None, "host"), constant(0))


def _device_pointer(machine: Machine, values: tuple[Value, ...]) -> Value:
    if len(values) > 1:
        _set(machine, values[0], values[1])
    return whole(0)


def _properties(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values:
        fields: dict[str, Value] = {name: device_property(name) for name in _DEVICE}
        sizes = (1024, 1024, 64), (2147483647, 65535, 65535)
        for name, parts in zip(("maxThreadsDim", "maxGridSize"), sizes, strict=True):
            fields[name] = Array(tuple(Number(variable(name, part, assumed=True)) for part in parts), "int")
        fields["totalGlobalMem"] = Number(variable("totalGlobalMem", 80 << 30, assumed=True), "size_t")
        fields["clockRate"] = Number(variable("clockRate", 1_980_000, assumed=True), "int")
        _set(machine, values[0], Struct("cudaDeviceProp", fields))
    return whole(0)


def _attribute(machine: Machine, values: tuple[Value, ...]) -> Value:
    if len(values) > 1:
        label = values[1].reason.strip("`") if isinstance(values[1], Unknown) else ""
        known = _ATTRIBUTES.get(label)
        found: Value = Number(unknown_term(label or "an attribute of the GPU", "an attribute of the GPU"))
        if known is not None:
            found = Number(variable(label, known, assumed=True))
        _set(machine, values[0], found)
    return whole(0)


def _one_device(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values:
        _set(machine, values[0], Number(variable("deviceCount", 1, assumed=True)))
    return whole(0)


def _device_zero(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values:
        _set(machine, values[0], whole(0))
    return whole(0)


def _occupancy(machine: Machine, values: tuple[Value, ...]) -> Value:
    for value in values[:2]:
        if isinstance(value, Address):
            machine.forget(Spot(value.cell, value.path), "what the occupancy calculator says")
    return whole(0)


def _to_integer(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], Text):
        match = re.match(r"\s*[-+]?\d+", values[0].text)
        return whole(int(match[0]) if match else 0)
    if values and isinstance(values[0], Thing) and values[0].kind == "argument":
        name = values[0].name.replace("[", "").replace("]", "")
        return machine.free(name)
    return machine.unknown("a number of the command line", "a text that is read at run time")


def _to_float(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], Text):
        match = re.match(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", values[0].text)
        return Number(constant(float(match[0]) if match else 0.0), "double")
    return machine.unknown("a number of the command line", "a text that is read at run time", "double")


def _pow(machine: Machine, values: tuple[Value, ...]) -> Value:
    if len(values) != 2 or not isinstance(values[0], Number) or not isinstance(values[1], Number):
        return NOTHING
    base, exponent = values
    assert isinstance(base, Number) and isinstance(exponent, Number)
    result: float | None = None
    if base.value is not None and exponent.value is not None:
        try:
            raised = float(base.value) ** float(exponent.value)
            result = raised if isinstance(raised, float) else None
        except (OverflowError, ZeroDivisionError):
            result = None
    return opaque("pow", exponent if base.term.is_constant else base, result)


def _extreme(which: str) -> Callable[[Machine, tuple[Value, ...]], Value]:
    def handler(machine: Machine, values: tuple[Value, ...]) -> Value:
        if len(values) == 1 and isinstance(values[0], Array):
            values = values[0].items
        if len(values) < 2 or not all(isinstance(value, Number) for value in values):
            return NOTHING
        result = values[0]
        for value in values[1:]:
            assert isinstance(result, Number) and isinstance(value, Number)
            ctype = common_type(result.ctype, value.ctype)
            result = Number(build(which, (result.term, value.term), ctype), ctype)
        return result

    return handler


def _absolute(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], Number):
        if values[0].term.is_constant and values[0].value is not None:
            return Number(constant(abs(values[0].value)), values[0].ctype)
        value = abs(values[0].value) if values[0].value is not None else None
        return opaque("abs", values[0], value, values[0].ctype)
    return NOTHING


def _same(machine: Machine, values: tuple[Value, ...]) -> Value:
    return values[0] if values else NOTHING


def _zero(machine: Machine, values: tuple[Value, ...]) -> Value:
    return whole(0)


def _null(machine: Machine, values: tuple[Value, ...]) -> Value:
    return Pointer(None, constant(0))


def _raw(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], Thing) and isinstance(values[0].fields.get("data"), Pointer):
        return values[0].fields["data"]
    return values[0] if values else NOTHING


def _length(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], Text):
        return whole(len(values[0].text), "size_t")
    return machine.unknown("strlen(...)", "the length of a text", "size_t")


def _compare(machine: Machine, values: tuple[Value, ...]) -> Value:
    if len(values) >= 2 and isinstance(values[0], Text) and isinstance(values[1], Text):
        return whole(int(values[0].text != values[1].text))
    return machine.unknown("strcmp(...)", "a text that is read at run time")


def _size_of_container(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], Array):
        return whole(len(values[0].items), "size_t")
    if values and isinstance(values[0], Thing) and isinstance(values[0].fields.get("count"), Number):
        return values[0].fields["count"]
    return NOTHING


def _run_on(machine: Machine, values: tuple[Value, ...]) -> Value:
    if values and isinstance(values[0], (Lambda, FunctionName)):
        return machine.run(values[0], values[1:])
    return NOTHING


_CALLS: dict[str, Callable[[Machine, tuple[Value, ...]], Value]] = {
    "cudaMallocPitch": _allocate_pitched,
    "cudaHostGetDevicePointer": _device_pointer,
    "cudaGetDeviceProperties": _properties,
    "cudaDeviceGetAttribute": _attribute,
    "cudaGetDeviceCount": _one_device,
    "cudaGetDevice": _device_zero,
    "cudaOccupancyMaxPotentialBlockSize": _occupancy,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": _occupancy,
    "cudaOccupancyMaxPotentialBlockSizeVariableSMem": _occupancy,
    "findCudaDevice": _zero,
    "gpuGetMaxGflopsDeviceId": _zero,
    "malloc": _malloc,
    "aligned_alloc": _malloc,
    "_mm_malloc": _malloc,
    "calloc": _calloc,
    "atoi": _to_integer,
    "atol": _to_integer,
    "atoll": _to_integer,
    "stoi": _to_integer,
    "stol": _to_integer,
    "stoull": _to_integer,
    "strtol": _to_integer,
    "strtoul": _to_integer,
    "atof": _to_float,
    "stof": _to_float,
    "pow": _pow,
    "powf": _pow,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "fmin": _extreme("min"),
    "fmax": _extreme("max"),
    "fminf": _extreme("min"),
    "fmaxf": _extreme("max"),
    "MIN": _extreme("min"),
    "MAX": _extreme("max"),
    "abs": _absolute,
    "move": _same,
    "forward": _same,
    "ref": _same,
    "__builtin_expect": _same,
    "raw_pointer_cast": _raw,
    "getenv": _null,
    "strlen": _length,
    "strcmp": _compare,
    "size": _size_of_container,
    "invoke": _run_on,
}


class _Containers:
    """`std::vector`, `thrust::device_vector` and the like."""

    _VECTOR = re.compile(
        r"(?:std|thrust)?(?:::)?(?P<kind>vector|device_vector|host_vector|universal_vector|array|unique_ptr|string|function)\s*(?:<(?P<inner>.*)>)?$"
    )

    def parameter(self, machine: Machine, type_text: str, name: str) -> Value | None:
        return None

    def construct(self, machine: Machine, type_text: str, arguments: tuple[Value, ...]) -> Value | None:
        match = self._VECTOR.match(type_text.strip())
        if match is None or match["inner"] is None:
            return None
        kind, parts = match["kind"], [part.strip() for part in match["inner"].split(",")]
        if kind == "function":
            return arguments[0] if arguments else Unknown("a function that is not set")
        element = canonical_type(machine.resolve_text(parts[0]))
        if kind == "array":
            if len(arguments) == 1 and isinstance(arguments[0], Array):
                arguments = arguments[0].items
            return Array(arguments, element)
        if kind == "unique_ptr":
            return arguments[0] if arguments else NOTHING
        where = "device" if kind == "device_vector" else "managed" if kind == "universal_vector" else "host"
        if not arguments:
            return self.made(machine, where, element, whole(0, "size_t"), None)
        first = arguments[0]
        if isinstance(first, Array):
            return self.made(machine, where, element, whole(len(first.items), "size_t"), first)
        if isinstance(first, Thing) and isinstance(first.fields.get("count"), Number):
            if first.kind == "position" and len(arguments) > 1 and isinstance(arguments[1], Thing):
                return self.made(machine, where, element, self.between(first, arguments[1]), None)
            return self.made(machine, where, element, first.fields["count"], None)
        if isinstance(first, Number) and not first.floating:
            return self.made(machine, where, element, convert(first, "size_t"), None)
        if len(arguments) > 2:
            return self.made(machine, where, element, whole(len(arguments), "size_t"), Array(arguments))
        return self.made(machine, where, element, machine.unknown("size", "the length of a vector", "size_t"), None)

    def made(self, machine: Machine, where: str, element: str, count: Value, items: Array | None) -> Thing:
        stars = element.endswith("*")
        width = 8 if stars else machine.width_of_text(element)
        nbytes = None
        if isinstance(count, Number) and width is not None:
            nbytes = build("*", (count.term, constant(width)), "long")
        fields: dict[str, Value] = {
            "count": count,
            "data": Pointer(Block(element, nbytes, where), constant(0), element),
        }
        if items is not None:
            fields["items"] = items
        return Thing("vector", where, fields)

    def between(self, first: Thing, last: Thing) -> Value:
        begin, end = first.fields.get("at", NOTHING), last.fields.get("at", NOTHING)
        return binary("-", end, begin)

    def call(
        self, machine: Machine, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        return None

    def method(
        self, machine: Machine, value: Value, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        if isinstance(value, Array):
            return whole(len(value.items), "size_t") if name == "size" else value if name == "data" else None
        if isinstance(value, Pointer) and name == "get":
            return value
        if not isinstance(value, Thing) or value.kind not in ("vector", "position", "devicepointer"):
            return None
        fields = value.fields
        count = fields.get("count", NOTHING)
        stored = fields.get("data", NOTHING)
        element = stored.element if isinstance(stored, Pointer) else "void"
        match name:
            case "size" | "length":
                return count
            case "empty":
                return binary("==", count, whole(0))
            case "data" if value.name != "device" and "items" in fields:
                # Whoever has the pointer may write through it.
                kept = {label: inner for label, inner in fields.items() if label != "items"}
                return Thing("changed", "", {"value": Thing(value.kind, value.name, kept), "result": stored})
            case "data":
                return Thing("devicepointer", "", {"data": stored}) if value.name == "device" else stored
            case "get":
                return stored
            case "begin" | "end" | "cbegin" | "cend":
                at = whole(0, "size_t") if name.endswith("begin") else count
                return Thing("position", value.name, {**fields, "at": at})
            case "resize" | "assign" if arguments and value.kind == "vector":
                made = self.made(machine, value.name, element, convert(arguments[0], "size_t"), None)
                return Thing("changed", "", {"value": made})
            case "push_back" | "emplace_back" if value.kind == "vector" and len(arguments) == 1:
                items = fields.get("items")
                grown = binary("+", count, whole(1))
                known: Array | None = None
                if isinstance(items, Array) or (isinstance(count, Number) and count.value == 0):
                    known = Array((*(items.items if isinstance(items, Array) else ()), arguments[0]))
                    grown = whole(len(known.items), "size_t")
                return Thing("changed", "", {"value": self.made(machine, value.name, element, grown, known)})
            case "clear":
                made = self.made(machine, value.name, element, whole(0, "size_t"), None)
                return Thing("changed", "", {"value": made})
            case _:
                return None


CONTAINERS = _Containers()
