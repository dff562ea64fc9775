"""From a launch spec and the sizes of one case to what a back end needs: grid, block, buffers and scalars.

Everything that can be wrong with a spec is a `BadSpec` with one sentence. Data are made from a seed, so the same
seed, case and distribution give the same bytes in every process.
"""

import ast
import math
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from dice_lsp.records import BufferSpec, Kernel, LaunchSpec, Parameter, Role, StructField
from dice_lsp.source.expressions import evaluate
from dice_lsp.worker.elements import Array, Element, Kind, element_of
from dice_lsp.worker.launch import Argument, BlockOrder, BufferArgument, Guard, Launch, Pointer, ScalarArgument

MEMORY_LIMIT_BYTES = 1 << 30
"""All buffers of one case together, unless the caller says otherwise."""
LARGE_ELEMENTS = 1 << 21
MAX_BLOCK_THREADS = 1024
MAX_SMEM_BYTES = 227 * 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
POISON_BYTES = (0xFF, secrets.choice((0x3C, 0x3D, 0x3E, 0x40, 0x41, 0x42, 0x43)))
"""NaN for every float type and -1 for integers; then an ordinary number (0.012 to 195 as float), so that adding to it shows.
Which one is drawn when the worker starts: a kernel that looks for it in its output cannot know it."""


@frozen
class BadSpec:
    """A spec that cannot be launched as it stands; `reason` is one sentence for the user."""

    reason: str
    too_large: bool = False
    """The case only needs too much memory: a smaller one may do."""
    empty: bool = False
    """The launch has no blocks or a buffer no elements in this case."""


class Distribution(StrEnum):
    """How inputs are drawn. All but `DEFAULT` only touch inputs whose directive does not say how.

    `ENDS` is for the others: inputs of a declared range of integers. `FRESH` draws as `DEFAULT` does, from another seed.
    """

    DEFAULT = "default"
    LARGE = "large values"
    NEGATIVE = "negative values"
    INTEGER = "integer values"
    EQUAL = "equal values"
    ZEROS = "zeros"
    TINY = "tiny values"
    CANCELLING = "values that cancel"
    ENDS = "both ends of the range"
    FRESH = "numbers never seen before"
    NAN = "NaN in the input"
    INF = "Inf in the input"


@frozen(eq=False)
class BoundBuffer:
    """One buffer of one case."""

    spec: BufferSpec
    element: Element
    shape: tuple[int, ...]
    """In elements; vector lanes are not counted."""
    count: int
    """Elements."""
    data: Array | None
    """Initial values (flat, storage type), None for a buffer that is poisoned before each run."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def checked(self) -> bool:
        """Its values after the run are compared with the reference."""
        return self.spec.role in (Role.OUT, Role.IO)

    def initial(self, poison: int) -> Array:
        """What the buffer holds before a run: its data, or pattern `poison` (0 or 1)."""
        if self.data is not None:
            return self.data
        raw = np.full(self.count * self.element.itemsize, POISON_BYTES[poison], np.uint8)
        return raw.view(self.element.storage)


@frozen(eq=False)
class BoundScalar:
    """One by-value argument of one case."""

    name: str
    element: Element
    value: float | int


@frozen(eq=False)
class BoundValue:
    """An argument that is no plain number and no plain buffer: a struct, or a pointer into the middle of a buffer."""

    name: str
    data: bytes
    pointers: tuple[Pointer, ...] = ()


@frozen(eq=False)
class Bound:
    """A kernel's launch in one case, data included."""

    dims: Mapping[str, int]
    names: Mapping[str, int]
    """Every integer that the spec's expressions may use in this case."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    buffers: Mapping[str, BoundBuffer]
    scalars: Mapping[str, BoundScalar]
    order: tuple[str, ...]
    """Argument names in the order of the kernel's parameters."""
    distribution: Distribution = Distribution.DEFAULT
    special: Mapping[str, Array] = field(factory=dict)
    """With `NAN` or `INF`: buffer name -> indices of the sprinkled elements."""
    values: Mapping[str, BoundValue] = field(factory=dict)
    """Parameter -> what is passed for it, where that is neither a number nor a whole buffer."""
    variables: Mapping[str, bytes] = field(factory=dict)
    """As `launch.Launch.variables`."""
    name: str = ""
    """What a verdict calls the launch, where it is one of the program's: `launch at line 210`, `captured 3`."""
    spec: LaunchSpec | None = None
    """What the launch was made from; None for a recorded one."""

    @property
    def recorded(self) -> bool:
        """Its data are those of the user's program."""
        return self.spec is None

    @property
    def label(self) -> str:
        """The case for a person: `n=33`, `n=33, large values`, `launch at line 210: n=33`, `captured 3`."""
        case = (
            f"{self.name}: {case_label(self.dims)}" if self.name and self.dims else self.name or case_label(self.dims)
        )
        return case if self.distribution is Distribution.DEFAULT else f"{case}, {self.distribution.value}"

    @property
    def checked(self) -> tuple[BoundBuffer, ...]:
        return tuple(buffer for buffer in self.buffers.values() if buffer.checked)

    @property
    def inputs(self) -> tuple[BoundBuffer, ...]:
        return tuple(buffer for buffer in self.buffers.values() if buffer.spec.role in (Role.IN, Role.IO))

    @property
    def bytes(self) -> int:
        return sum(buffer.count * buffer.element.itemsize for buffer in self.buffers.values())

    @property
    def large(self) -> bool:
        """So many elements that each run must be worth its time."""
        return sum(buffer.count for buffer in self.buffers.values()) > LARGE_ELEMENTS

    def launch(
        self,
        *,
        poison: int = 0,
        order: BlockOrder = BlockOrder.ASCENDING,
        guard: Guard = Guard.RIGHT,
        seed: int = 0,
        deadline_s: float = 10.0,
        extra_smem_bytes: int = 0,
        shift_bytes: int = 0,
    ) -> Launch:
        """One run of the case; outputs hold poison pattern `poison` (0 or 1) before it."""
        return Launch(
            grid=self.grid,
            block=self.block,
            smem_bytes=self.smem_bytes,
            arguments=tuple(self._arguments(poison)),
            variables=self.variables,
            order=order,
            guard=guard,
            seed=seed,
            deadline_s=deadline_s,
            extra_smem_bytes=extra_smem_bytes,
            shift_bytes=shift_bytes,
        )

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the buffers that are no arguments themselves: structs and pointers point into them."""
        return tuple(name for name in self.buffers if name in self.values or name not in self.order)

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of the buffers that are arguments themselves."""
        return tuple(name for name in self.order if name in self.buffers and name not in self.values)

    def by_value(self, name: str) -> ScalarArgument:
        """The argument of a parameter that is not in `passed`."""
        if (value := self.values.get(name)) is not None:
            return ScalarArgument(name, value.data, value.pointers)
        return ScalarArgument(name, scalar_bytes(self.scalars[name].element, self.scalars[name].value))

    def _arguments(self, poison: int) -> Iterator[Argument]:
        passed = self.passed
        for name in self.order:
            yield self._buffer(name, poison, True) if name in passed else self.by_value(name)
        for name in self.hidden:
            yield self._buffer(name, poison, False)

    def _buffer(self, name: str, poison: int, passed: bool) -> BufferArgument:
        buffer = self.buffers[name]
        writable = buffer.spec.role is not Role.IN
        return BufferArgument(name, buffer.initial(poison), buffer.element.itemsize, writable, passed=passed)


def scalar_bytes(element: Element, value: float | int) -> bytes:
    """The bytes of one by-value argument."""
    return element.encode(np.array([value])).tobytes()


def bind(
    spec: LaunchSpec,
    kernel: Kernel,
    dims: Mapping[str, int],
    seed: int = 0,
    distribution: Distribution = Distribution.DEFAULT,
    *,
    folder: str | None = None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
) -> Bound | BadSpec:
    """Everything about one launch of `kernel` with the sizes `dims`.

    `folder` is where `file("x.npy")` may read: the document's own folder, nothing outside of it.
    """
    try:
        return _bind(spec, kernel, dims, seed, distribution, folder, memory_limit_bytes)
    except _Bad as error:
        return error.bad


@frozen(eq=False)
class Plan:
    """The numbers of one launch, without data: what `bind` would make."""

    dims: Mapping[str, int]
    names: Mapping[str, int]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    sizes: Mapping[str, tuple[tuple[int, ...], Element]]
    """Buffer name -> shape in elements, element."""

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) * element.itemsize for shape, element in self.sizes.values())

    @property
    def elements(self) -> int:
        return sum(math.prod(shape) for shape, _ in self.sizes.values())

    @property
    def threads(self) -> int:
        return math.prod(self.grid) * math.prod(self.block)


def plan(spec: LaunchSpec, kernel: Kernel, dims: Mapping[str, int]) -> Plan | BadSpec:
    """Sizes and launch of one case, cheaply: nothing is allocated."""
    try:
        return _plan(spec, kernel, dims)
    except _Bad as error:
        return error.bad


class _Bad(Exception):
    def __init__(self, reason: str, too_large: bool = False, empty: bool = False) -> None:
        super().__init__(reason)
        self.bad = BadSpec(reason, too_large, empty)


def _plan(spec: LaunchSpec, kernel: Kernel, dims: Mapping[str, int]) -> Plan:
    if spec.unknown:
        raise _Bad(spec.unknown[0])
    if spec.grid is None or spec.block is None:
        raise _Bad("the launch is not known: write `launch <<<grid, block>>>` in a //dice: line")
    names = _names(spec, kernel, dims)
    case = case_label(dims)
    grid = _dim3("grid", spec.grid, names, _MAX_GRID, case)
    block = _dim3("block", spec.block, names, _MAX_BLOCK, case)
    if math.prod(block) > MAX_BLOCK_THREADS:
        raise _Bad(f"a block of {math.prod(block)} threads is over the limit of {MAX_BLOCK_THREADS} for {case}")
    smem_bytes = _integer(spec.smem_bytes, names, "the dynamic shared memory")
    if not 0 <= smem_bytes <= MAX_SMEM_BYTES:
        raise _Bad(f"{smem_bytes} bytes of dynamic shared memory are outside 0 to {MAX_SMEM_BYTES} for {case}")
    return Plan(dict(dims), names, grid, block, smem_bytes, _sizes(spec, kernel, names, case))


def case_label(dims: Mapping[str, int]) -> str:
    """`n=33, d=7`."""
    return ", ".join(f"{name}={value}" for name, value in dims.items()) or "the only case"


def _bind(
    spec: LaunchSpec,
    kernel: Kernel,
    dims: Mapping[str, int],
    seed: int,
    distribution: Distribution,
    folder: str | None,
    memory_limit_bytes: int,
) -> Bound:
    planned = _plan(spec, kernel, dims)
    if planned.bytes > memory_limit_bytes:
        raise _Bad(
            f"the buffers need {planned.bytes} bytes for {case_label(dims)}, more than {memory_limit_bytes}: "
            "add a smaller size",
            too_large=True,
        )
    specs = {buffer.name: buffer for buffer in spec.buffers}
    buffers: dict[str, BoundBuffer] = {}
    scalars: dict[str, BoundScalar] = {}
    values: dict[str, BoundValue] = {}
    special: dict[str, Array] = {}
    entropy = [seed & (2**63 - 1), *(abs(value) & (2**63 - 1) for value in dims.values())]
    for name, (shape, element) in planned.sizes.items():
        rng = np.random.default_rng([*entropy, zlib.crc32(name.encode())])
        # Two infinities at one place may cancel or not by how a formula is written; one input is enough.
        drawn = Distribution.DEFAULT if distribution is Distribution.INF and special else distribution
        data, marked = _data(specs[name], element, math.prod(shape), planned.names, rng, drawn, folder)
        if marked is not None:
            special[name] = marked
        buffers[name] = BoundBuffer(specs[name], element, shape, math.prod(shape), data)
    for parameter in kernel.parameters:
        if parameter.pointer:
            continue
        if fields := fields_of(spec, parameter):
            values[parameter.name] = _struct(spec, parameter, fields, planned.names, seed)
        else:
            scalars[parameter.name] = _scalar(spec, parameter, planned.names, seed)
    return Bound(
        planned.dims, planned.names, planned.grid, planned.block, planned.smem_bytes, buffers, scalars,
        tuple(parameter.name for parameter in kernel.parameters), distribution, special, values,
        name=spec.label if all(dims[dim.name] == dim.values[0] for dim in spec.dims) else "", spec=spec,
    )  # fmt: skip


def repeated(
    spec: LaunchSpec, kernel: Kernel, bound: Bound, dims: Mapping[str, int], repeats: int, windows: tuple[int, ...]
) -> Launch | None:
    """The launch of a case with larger `dims` whose buffers hold those of `bound` over and over again.

    None where that is not `repeats` times the same: every buffer must grow so many times or not at all, those that are
    compared must grow.
    """
    planned = plan(spec, kernel, dims)
    if isinstance(planned, BadSpec) or bound.values:
        return None
    arguments: list[Argument] = []
    for parameter in kernel.parameters:
        if not parameter.pointer:
            scalar = bound.scalars[parameter.name]
            if parameter.name in planned.names or parameter.name in spec.scalars:
                try:
                    scalar = _scalar(spec, parameter, planned.names, 0)
                except _Bad:
                    return None
            arguments.append(ScalarArgument(parameter.name, scalar_bytes(scalar.element, scalar.value)))
            continue
        buffer = bound.buffers[parameter.name]
        count = math.prod(planned.sizes[parameter.name][0])
        times = repeats if count == repeats * buffer.count else 1
        if count != times * buffer.count or (buffer.checked and times != repeats):
            return None
        writable = buffer.spec.role is not Role.IN
        arguments.append(BufferArgument(buffer.name, buffer.initial(0), buffer.element.itemsize, writable, times))
    return Launch(planned.grid, planned.block, planned.smem_bytes, tuple(arguments), windows=windows)


def _names(spec: LaunchSpec, kernel: Kernel, dims: Mapping[str, int]) -> dict[str, int]:
    """Constants of the file, integer template arguments, dims and integer scalars, later ones hiding earlier ones."""
    names: dict[str, int] = dict(spec.constants)
    for name, text in spec.template.items():
        try:
            names[name] = evaluate(text, names)
        except ValueError:
            continue  # a type, or a value that no size depends on; if one does, its own expression names it
    names.update(dims)
    for parameter in kernel.parameters:
        element = None if parameter.pointer else element_of(spec.template.get(parameter.element, parameter.element))
        if parameter.name in spec.scalars and element is not None and element.kind is not Kind.FLOAT:
            names[parameter.name] = _integer(spec.scalars[parameter.name], names, f"`{parameter.name}`")
    return names


def _integer(expression: str, names: Mapping[str, int], what: str) -> int:
    try:
        return evaluate(expression, names)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise _Bad(f"{what} cannot be worked out from `{expression}`: {error}") from None


def _dim3(
    what: str, expressions: tuple[str, str, str], names: Mapping[str, int], limits: tuple[int, int, int], case: str
) -> tuple[int, int, int]:
    values = [_integer(expression, names, f"the {what}") for expression in expressions]
    for axis, expression, value, limit in zip("xyz", expressions, values, limits, strict=True):
        if value <= 0:
            noun = "blocks" if what == "grid" else "threads"
            raise _Bad(f"the launch has {value} {noun} in {axis} for {case}: {what} is `{expression}`", empty=True)
        if value > limit:
            raise _Bad(f"{what}.{axis} is {value}, over the limit of {limit}, for {case}")
    return values[0], values[1], values[2]


def _sizes(
    spec: LaunchSpec, kernel: Kernel, names: Mapping[str, int], case: str
) -> dict[str, tuple[tuple[int, ...], Element]]:
    specs = {buffer.name: buffer for buffer in spec.buffers}
    sizes: dict[str, tuple[tuple[int, ...], Element]] = {}
    for name, spelling, element in _pointers(spec, kernel):
        if name not in specs:
            raise _Bad(f"the size of `{name}` is not known: write `in {name}[n]` in a //dice: line")
        if element is None:
            raise _Bad(f"the element type `{spelling}` of `{name}` is not one that data can be made for")
        shape = []
        for extent in specs[name].extents:
            value = _integer(extent, names, f"the size of `{name}`")
            if value <= 0:
                raise _Bad(f"`{name}` has {value} elements for {case}: its size is `{extent}`", empty=True)
            shape.append(value)
        sizes[name] = (tuple(shape) or (1,), element)
    return sizes


def _pointers(spec: LaunchSpec, kernel: Kernel) -> Iterator[tuple[str, str, Element | None]]:
    """Every pointer that a launch must fill, inside structs too: its name, its pointee's type and element."""
    for parameter in kernel.parameters:
        if parameter.pointer and parameter.indirections > 1:
            raise _Bad(f"`{parameter.name}` is a pointer to pointers, which a //dice: line cannot describe")
        if parameter.pointer:
            yield parameter.name, spec.template.get(parameter.element, parameter.element), pointee(spec, parameter)
            continue
        for item in fields_of(spec, parameter):
            name = f"{parameter.name}.{item.name}"
            if item.pointer and not _is_null(spec.scalars.get(name)):
                yield name, item.element, element_of(spec.template.get(item.element, item.element))


def buffer_elements(spec: LaunchSpec, kernel: Kernel) -> dict[str, Element]:
    """The element of every buffer that is known, those behind structs too."""
    try:
        return {name: element for name, _, element in _pointers(spec, kernel) if element is not None}
    except _Bad:
        return {}


def pointee(spec: LaunchSpec, parameter: Parameter) -> Element | None:
    """What a pointer points to: a type that is known, or a struct of numbers that are all alike."""
    spelling = spec.template.get(parameter.element, parameter.element)
    if (element := element_of(spelling)) is not None:
        return element
    return uniform(parameter.element, parameter.fields, parameter.size_bytes)


def uniform(spelling: str, fields: Sequence[StructField], size_bytes: int) -> Element | None:
    """A struct as an element of several lanes, where all that is in it are numbers of one type without gaps."""
    kinds = {field.element for field in fields if not field.pointer}
    if len(kinds) != 1 or any(field.pointer for field in fields):
        return None
    element = element_of(next(iter(kinds)))
    if element is None or element.lanes != 1 or len(fields) * element.itemsize != size_bytes:
        return None
    return evolve(element, spelling=spelling, lanes=len(fields), itemsize=size_bytes)


def fields_of(spec: LaunchSpec, parameter: Parameter) -> tuple[StructField, ...]:
    """What is in a struct that is passed by value; the lanes of a vector type are its fields. None for a number."""
    if parameter.pointer:
        return ()
    spelling = spec.template.get(parameter.element, parameter.element)
    element = element_of(spelling)
    if element is None:
        return parameter.fields
    if element.lanes == 1:
        return ()
    lane, kind = element.itemsize // element.lanes, _LANES.get(element.storage.str, "")
    if not kind or element.bfloat16:
        return ()
    return tuple(
        StructField(axis, kind, False, False, number * lane, lane)
        for number, axis in zip(range(element.lanes), "xyzw", strict=False)
    )


_LANES = {
    "<f4": "float", "<f8": "double", "<f2": "__half", "|i1": "signed char", "|u1": "unsigned char", "<i2": "short",
    "<u2": "unsigned short", "<i4": "int", "<u4": "unsigned int", "<i8": "long long", "<u8": "unsigned long long",
}  # fmt: skip
"""A type of numbers for each that a vector type holds."""


def _is_null(expression: str | None) -> bool:
    return expression is not None and expression.strip() in ("0", "NULL", "nullptr")


def _struct(
    spec: LaunchSpec, parameter: Parameter, fields: Sequence[StructField], names: Mapping[str, int], seed: int
) -> BoundValue:
    """A struct's bytes, from an expression for each number and a buffer for each pointer in it; gaps hold zeros."""
    data = bytearray(max([parameter.size_bytes, *(field.offset + field.size_bytes for field in fields)]))
    pointers: list[Pointer] = []
    for item in fields:
        name = f"{parameter.name}.{item.name}"
        if item.pointer:
            if not _is_null(spec.scalars.get(name)):
                pointers.append(Pointer(item.offset, name))
            continue
        if name not in spec.scalars:
            raise _Bad(f"the value of `{name}` is not known: write `set {name} = ...` in a //dice: line")
        spelling = spec.template.get(item.element, item.element)
        element = element_of(spelling)
        if element is None or element.lanes > 1 or element.itemsize != item.size_bytes:
            raise _Bad(f"no value can be made for `{name}` of type `{spelling}`")
        value: float | int
        try:
            # An integer of 64 bits has more digits than a float.
            value = evaluate(spec.scalars[name], names)
        except (ValueError, ArithmeticError, RecursionError):
            value = number(spec.scalars[name], names, f"`{name}`")
        scalar = _number(name, element, spelling, value)
        data[item.offset : item.offset + item.size_bytes] = scalar_bytes(element, scalar.value)
    return BoundValue(parameter.name, bytes(data), tuple(pointers))


def _scalar(spec: LaunchSpec, parameter: Parameter, names: Mapping[str, int], seed: int) -> BoundScalar:
    spelling = spec.template.get(parameter.element, parameter.element)
    element = element_of(spelling)
    if element is None or element.lanes > 1:
        raise _Bad(f"no value can be made for `{parameter.name}` of type `{spelling}`")
    value: float | int
    if parameter.name in names and element.kind is not Kind.FLOAT:
        value = names[parameter.name]
    elif parameter.name in spec.scalars or parameter.name in names:
        value = number(spec.scalars.get(parameter.name, parameter.name), names, f"`{parameter.name}`")
    elif element.kind is Kind.FLOAT:
        value = _free_scalar(parameter.name, seed)
    elif element.kind is Kind.BOOL:
        value = seed % 2
    else:
        raise _Bad(
            f"the value of `{parameter.name}` is not known: write `set {parameter.name} = ...` in a //dice: line"
        )
    return _number(parameter.name, element, spelling, value)


def _number(name: str, element: Element, spelling: str, value: float | int) -> BoundScalar:
    if element.kind is Kind.INT:
        limits = np.iinfo(element.storage)
        if not limits.min <= value <= limits.max:
            raise _Bad(f"`{name}` = {value} does not fit in {spelling}")
        value = int(value)
    elif element.kind is Kind.BOOL:
        value = int(bool(value))
    else:
        value = float(element.round(np.array([value]))[0])
    return BoundScalar(name, element, value)


_LOWER_BOUND = re.compile(r"lo|lb|low(?:er)?|floor|\w?min(?!us)\w*", re.IGNORECASE)
_FRACTION = re.compile(r"slope|leak\w*|prob\w*|rate|ratio|frac\w*|momentum|decay|dropout|keep", re.IGNORECASE)


def _free_scalar(name: str, seed: int) -> float:
    """A value for a float that nobody set, never a power of two: what its name says it is, else between 0.5 and 2.

    A lower bound is negative, so that it lies below any upper one; the slope of a leaky ReLU or a rate is below 1.
    """
    if re.search(r"eps|tiny", name, re.IGNORECASE):
        return 1e-5
    value = float(np.random.default_rng([seed & (2**63 - 1), zlib.crc32(name.encode())]).uniform(0.5, 2.0))
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    if any(_LOWER_BOUND.fullmatch(word) for word in words):
        return -value
    return value / 4 if any(_FRACTION.fullmatch(word) for word in words) else value


def number(expression: str, names: Mapping[str, int], what: str) -> float:
    """The value of a C expression with floats: literals, names, + - * / and parentheses. Raises inside `bind` only."""
    try:
        return float(evaluate(expression, names))
    except (ValueError, ArithmeticError, RecursionError):
        pass
    python = re.sub(r"(?<=[\d.])[fF]\b", "", expression.strip())
    try:
        value = _fold(ast.parse(python, mode="eval").body, names)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        raise _Bad(f"{what} cannot be worked out from `{expression}`: it is no number") from None
    return value


def _fold(node: ast.expr, names: Mapping[str, int]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name) if name in names:
            return float(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_fold(operand, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _fold(operand, names)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _fold(left, names), _fold(right, names)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div():
                    return a / b
        case ast.Call(func=ast.Name(id="sqrt" | "sqrtf"), args=[argument], keywords=[]):
            return math.sqrt(_fold(argument, names))
    raise ValueError("not a number")


_INIT = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*", re.DOTALL)


def is_free(init: str) -> bool:
    """The directive leaves the values open, so other distributions may be tried."""
    return init.strip() in ("", "normal")


def _data(
    spec: BufferSpec,
    element: Element,
    count: int,
    names: Mapping[str, int],
    rng: np.random.Generator,
    distribution: Distribution,
    folder: str | None,
) -> tuple[Array | None, Array | None]:
    """Initial values (storage type, flat) and the indices of sprinkled special values; no values for poisoned buffers."""
    free = is_free(spec.init)
    if spec.role in (Role.OUT, Role.TMP) and free:
        return None, None
    numbers = count * element.lanes
    if free and element.kind is Kind.FLOAT:
        return _floats(element, numbers, rng, distribution)
    if free and element.kind is Kind.INT and distribution is Distribution.LARGE:
        return element.encode(_large_ints(element, numbers, rng)), None
    values = _drawn(spec, element, numbers, names, rng, folder)
    if distribution is Distribution.ENDS and (ends := _ends(spec, names)) is not None:
        values = np.array(values)
        values[1::4], values[::4] = ends
    if free and distribution is Distribution.NEGATIVE and element.storage.kind == "i":
        values = -1 - np.abs(values)
    ranged = free or spec.init.strip().startswith("int")
    if distribution is Distribution.EQUAL and ranged and element.kind is not Kind.FLOAT and spec.role is Role.IN:
        values = np.full(numbers, values.flat[0])
    return element.encode(values), None


def _floats(
    element: Element, numbers: int, rng: np.random.Generator, distribution: Distribution
) -> tuple[Array, Array | None]:
    values = rng.standard_normal(numbers, dtype=np.float32).astype(np.float64)
    marked: Array | None = None
    match distribution:
        case Distribution.LARGE:
            # 65504 is the largest half, so halves get a smaller step.
            values *= 100.0 if element.storage == np.float16 else 1e4
        case Distribution.NEGATIVE:
            # So far below zero that its exponential is nothing: a maximum that begins at zero shows.
            scale, offset = (10.0, 20.0) if element.storage == np.float16 else (1e3, 110.0)
            values = -np.abs(values) * scale - offset
        case Distribution.INTEGER:
            values = np.round(values * 3)
            values[:: max(2, numbers // 64)] = -0.0
        case Distribution.EQUAL:
            values = np.full(numbers, 1.5)
        case Distribution.ZEROS:
            values = np.where(rng.random(numbers) < 0.5, -0.0, 0.0)
        case Distribution.TINY:
            values *= _tiny_scale(element)
            values[::7] = np.copysign(_smallest(element), values[::7])
        case Distribution.CANCELLING:
            # Every number has its negative at the other end, so whole sums are nothing and partial ones are not.
            values *= 10.0
            values[numbers - numbers // 2 :] = -values[: numbers // 2][::-1]
            values[numbers // 2 : numbers - numbers // 2] = 0.0
        case Distribution.NAN:
            marked = np.unique(rng.integers(0, numbers, max(1, numbers // 16)))
            values[marked] = np.nan
        case Distribution.INF:
            marked = np.unique(rng.integers(0, numbers, max(1, numbers // 16)))
            values[marked] = np.where(np.arange(marked.size) % 2 == 0, np.inf, -np.inf)
    return element.encode(values), marked


def _tiny_scale(element: Element) -> float:
    """So small that squares are still normal numbers, and their sums with ordinary ones lose them."""
    return 1e-2 if element.storage == np.float16 else 1e-15


def _smallest(element: Element) -> float:
    """A denormal number of the type that all digits are not lost of."""
    if element.bfloat16:
        return 2.0**-130
    return 64 * float(np.finfo(element.storage).smallest_subnormal)


def _drawn(
    spec: BufferSpec, element: Element, numbers: int, names: Mapping[str, int], rng: np.random.Generator,
    folder: str | None,
) -> Array:  # fmt: skip
    match = _INIT.fullmatch(spec.init)
    what = f"the values of `{spec.name}`"
    if is_free(spec.init):
        word, arguments = "int", []
    elif match is None:
        raise _Bad(f"{what} cannot be read: `{spec.init}` is no init")
    else:
        word, arguments = match[1], _split(match[2])
    isint = element.kind is not Kind.FLOAT
    match word, arguments:
        case "normal", []:
            return rng.standard_normal(numbers)
        case "uniform", [low, high]:
            lowest, highest = number(low, names, what), number(high, names, what)
            if not (lowest <= highest and math.isfinite(highest - lowest)):
                raise _Bad(f"{what}: `{spec.init}` is no range")
            return rng.uniform(lowest, highest, numbers)
        case "int", []:
            return _default_ints(element, numbers, rng)
        case "int", [low, high]:
            a, b = _integer(low, names, what), _integer(high, names, what)
            if not -(2**63) <= a < b <= 2**63 - 1:
                raise _Bad(f"{what}: `{spec.init}` is an empty range, int(a, b) draws from a to b - 1")
            return rng.integers(a, b, numbers)
        case "iota", []:
            steps = np.arange(numbers)
            return steps if isint else steps % 2048 if element.itemsize // element.lanes == 2 else steps
        case "zeros", []:
            return np.zeros(numbers, np.int64)
        case "ones", []:
            return np.ones(numbers, np.int64)
        case "perm", [size]:
            n = _integer(size, names, what)
            if n <= 0 or numbers % n:
                raise _Bad(f"{what}: {numbers} elements are not whole permutations of {n}")
            return np.concatenate([rng.permutation(n) for _ in range(numbers // n)])
        case "sorted", []:
            return np.sort(_default_ints(element, numbers, rng) if isint else rng.standard_normal(numbers))
        case "file", [name]:
            return _from_file(name.strip().strip("\"'"), numbers, folder, what)
    raise _Bad(f"{what} cannot be read: `{spec.init}` is no init")


def declares_range(spec: BufferSpec) -> bool:
    """The directive says which integers a buffer holds: `int(a, b)`."""
    return spec.init.strip().startswith("int(")


def _ends(spec: BufferSpec, names: Mapping[str, int]) -> tuple[int, int] | None:
    match = _INIT.fullmatch(spec.init)
    if not declares_range(spec) or match is None:
        return None
    low, high = (_integer(part, names, f"the values of `{spec.name}`") for part in _split(match[2]))
    return low, high - 1


def _default_ints(element: Element, numbers: int, rng: np.random.Generator) -> Array:
    if element.kind is Kind.BOOL:
        return rng.integers(0, 2, numbers)
    if element.storage == np.uint8:
        return rng.integers(0, 256, numbers)
    return rng.integers(0 if element.storage.kind == "u" else -100, 100, numbers)


def _large_ints(element: Element, numbers: int, rng: np.random.Generator) -> Array:
    """Integers that need their whole type: their sums overflow it, and a narrower type on the way would lose digits.

    Signed ones leave room for the sum of a few, which C does not define beyond the type.
    """
    limits = np.iinfo(element.storage)
    if limits.min == 0 or element.storage.itemsize == 1:
        return rng.integers(limits.min, limits.max, numbers, element.storage, endpoint=True)
    return rng.integers(limits.min // 4, limits.max // 4, numbers)


def _split(text: str | None) -> list[str]:
    """Arguments at top-level commas; none for no parentheses or empty ones."""
    if text is None or not text.strip():
        return []
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _from_file(name: str, numbers: int, folder: str | None, what: str) -> Array:
    if folder is None:
        raise _Bad(f"{what}: the document has no folder to read `{name}` from")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([root, path]) != root:
        raise _Bad(f"{what}: `{name}` lies outside the document's folder")
    try:
        # Mapped, so that a header that promises a huge array costs nothing; without pickle, so that nothing runs.
        loaded: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _Bad(f"{what}: `{name}` cannot be read: {str(error).rstrip('.')}") from None
    if not isinstance(loaded, np.ndarray) or loaded.dtype.kind not in "fiub":
        raise _Bad(f"{what}: `{name}` holds no numbers")
    if loaded.size != numbers:
        raise _Bad(f"{what}: `{name}` holds {loaded.size} numbers, {numbers} are needed")
    return np.array(loaded).reshape(-1)
