"""What PyTorch's C++ library means in host code: tensors, their sizes and memory, and dispatch by element type.

`source.host_program` interprets a function as `torch::Tensor softmax(torch::Tensor x)` and asks here for what belongs to
torch (ATen's and c10's names as of PyTorch 2). A tensor that a caller passes has free sizes, or those that a Python
program was seen to pass. Its number of dimensions is rarely written; it is taken to be what `TORCH_CHECK(x.dim() == 2)`
says, else the number of sizes that were asked for before the memory was, and what contradicts that becomes unknown.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, cast
from weakref import WeakKeyDictionary

from attrs import frozen

from dice_lsp.source.host_values import (
    NOTHING,
    Array,
    Block,
    Lambda,
    Number,
    Pointer,
    Term,
    Thing,
    Unknown,
    Value,
    binary,
    build,
    constant,
    type_width,
    variable,
    whole,
)
from dice_lsp.source.python_program import Tensor

MAX_RANK = 8
_NOTHING_GIVEN: "Given" = {}
TENSOR = "tensor"
_SHAPE = "shape"
_TENSOR_TYPE = re.compile(r"^(?:const\s+)?(?:(?:torch|at)\s*::\s*)?Tensor(?:\s+const)?\s*(?:&&?)?$")
_SPACES = ("torch", "at", "c10", "aten")
_ELEMENTS = {
    "at::Half": "__half", "c10::Half": "__half", "torch::Half": "__half", "half": "__half", "at::BFloat16": "__nv_bfloat16",
    "c10::BFloat16": "__nv_bfloat16", "torch::BFloat16": "__nv_bfloat16", "int64_t": "long", "int32_t": "int",
}  # fmt: skip
_LIKE = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "clone"}
_MADE = {"empty", "zeros", "ones", "full", "rand", "randn"}
_SAME = {
    "contiguous", "cuda", "detach", "clone", "to", "data", "toType", "type", "cpu", "requires_grad_", "set_requires_grad",
    "zero_", "fill_", "copy_", "alias", "expect_contiguous",
}  # fmt: skip
"""Methods after which a tensor has the same sizes, laid out in the same order."""
_TRUE = {"is_cuda", "is_contiguous", "defined", "is_floating_point", "has_value"}
_CHECKS = {
    "TORCH_CHECK",
    "AT_ASSERT",
    "AT_ASSERTM",
    "TORCH_INTERNAL_ASSERT",
    "TORCH_CHECK_EQ",
    "AT_CHECK",
    "TORCH_CHECK_VALUE",
}
_QUIET = {
    "C10_CUDA_KERNEL_LAUNCH_CHECK", "C10_CUDA_CHECK", "AT_CUDA_CHECK", "TORCH_CUDA_CHECK", "TORCH_WARN", "device_of",
    "getCurrentCUDAStream", "getDefaultCUDAStream", "getStreamFromPool", "synchronize", "manual_seed",
}  # fmt: skip
DISPATCHED: Mapping[str, tuple[str, ...]] = {
    "AT_DISPATCH_FLOATING_TYPES": ("float", "double"),
    "AT_DISPATCH_FLOATING_TYPES_AND_HALF": ("float", "double"),
    "AT_DISPATCH_FLOATING_TYPES_AND": ("float", "double"),
    "AT_DISPATCH_FLOATING_TYPES_AND2": ("float", "double"),
    "AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES": ("float", "double"),
    "AT_DISPATCH_REDUCED_FLOATING_TYPES": ("__half", "__nv_bfloat16"),
    "AT_DISPATCH_ALL_TYPES": ("float", "double", "int"),
    "AT_DISPATCH_ALL_TYPES_AND": ("float", "double", "int"),
    "AT_DISPATCH_ALL_TYPES_AND2": ("float", "double", "int"),
    "AT_DISPATCH_ALL_TYPES_AND3": ("float", "double", "int"),
    "AT_DISPATCH_INTEGRAL_TYPES": ("int", "long"),
    "AT_DISPATCH_INDEX_TYPES": ("long", "int"),
    "AT_DISPATCH_CASE_FLOATING_TYPES": ("float", "double"),
    "AT_DISPATCH_CASE_ALL_TYPES": ("float", "double", "int"),
    "AT_DISPATCH_CASE_INTEGRAL_TYPES": ("int", "long"),
}
"""Macro of ATen/Dispatch.h -> the element types that are run, the commonest first; a kernel for `at::Half` needs ATen's."""


Given = Mapping[str, Mapping[str, Tensor | float | None]]
"""Function -> its parameter -> what a Python program passes."""


class Machine(Protocol):
    """What `host_machine.Machine` gives to a library."""

    entry: str
    """The function that is interpreted from its beginning."""

    def free(self, name: str, ctype: str = "int") -> Number: ...

    def run(
        self, function: Value, arguments: tuple[Value, ...] = (), types: Mapping[str, str] | None = None
    ) -> Value: ...

    def assume(self, condition: Number | None, answer: bool) -> None: ...

    def conditions(self) -> tuple[tuple[Term, bool], ...]: ...


class _Memory:
    """What is remembered for one machine."""

    def __init__(self) -> None:
        self.made = 0
        self.ranks: dict[Term, Thing] = {}
        self.sizes: dict[Term, tuple[Thing, int]] = {}
        self.given: dict[tuple[str, int], Number] = {}


_memories: "WeakKeyDictionary[Machine, _Memory]" = WeakKeyDictionary()


def _memory(machine: Machine) -> _Memory:
    return _memories.setdefault(machine, _Memory())


@frozen
class TorchLibrary:
    """The answers; None for what is not torch's."""

    def parameter(self, machine: Machine, type_text: str, name: str) -> Value | None:
        """A parameter of an entry function: a tensor, or a number that a Python program passes."""
        given = getattr(machine, "given", _NOTHING_GIVEN).get(machine.entry, {}).get(name)
        if _TENSOR_TYPE.match(" ".join(type_text.split())):
            known = given.shape if isinstance(given, Tensor) else None
            return _tensor(name, None if known is None else [_known(machine, name, *size) for size in enumerate(known)])
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            ctype = " ".join(word for word in re.findall(r"\w+", type_text) if word not in ("const", "std"))
            if ctype in ("float", "double") or (
                isinstance(given, int) and ctype in ("int", "int64_t", "long", "size_t")
            ):
                return Number(variable(name, given), "long" if ctype == "int64_t" else ctype)
        return None

    def construct(self, machine: Machine, type_text: str, arguments: tuple[Value, ...]) -> Value | None:
        """`torch::Tensor y = ...`, `torch::TensorOptions()`, guards."""
        text = " ".join(type_text.split())
        if _TENSOR_TYPE.match(text):
            return arguments[0] if len(arguments) == 1 else Unknown("a tensor that is not made yet")
        name = _own_name(text)
        if name == "TensorOptions":
            return Thing("options", "")
        if name is not None and name.endswith("Guard"):
            return NOTHING
        return None

    def call(
        self, machine: Machine, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        """A free function or a macro of torch."""
        base = name.replace(" ", "")
        if base in DISPATCHED:
            return _dispatch(machine, DISPATCHED[base], arguments)
        if base == "AT_DISPATCH_SWITCH" or base == "AT_DISPATCH_CASE":
            return _dispatch(machine, ("float",), arguments) if base.endswith("CASE") else NOTHING
        if base in _CHECKS:
            return _check(machine, base, arguments)
        own = _own_name(base)
        if own is None:
            return NOTHING if base in _QUIET else None
        if own in _QUIET:
            return NOTHING
        if own in ("TensorOptions", "dtype", "device"):
            return Thing("options", "")
        if own in _LIKE and arguments and _is_tensor(arguments[0]):
            return _like(machine, cast(Thing, arguments[0]), own)
        if own in _MADE and arguments:
            return _made(machine, arguments[0], own)
        if own in ("ceil_div", "ATenCeilDiv", "divup") and len(arguments) == 2:
            above = binary("-", binary("+", arguments[0], arguments[1]), whole(1))
            return binary("/", above, arguments[1])
        if own in ("numel", "size") and arguments and _is_tensor(arguments[0]):
            return self.method(machine, arguments[0], own, template, arguments[1:])
        return Unknown(f"the result of {name}(...)")

    def method(
        self, machine: Machine, value: Value, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        """A method of a tensor, of its sizes or of its options."""
        if not isinstance(value, Thing):
            return None
        if value.kind == "options":
            return value if name != "dtype" or arguments else Unknown("the type of a tensor")
        if value.kind == _SHAPE:
            return _method_of_shape(machine, value, name, arguments)
        return _method_of_tensor(machine, value, name, template, arguments) if value.kind == TENSOR else None


LIBRARY = TorchLibrary()


# Tensors: a thing whose fields are its shape and its memory, filled in as they are asked for. A shape is a thing of its
# own, so that `empty_like(x)` has the very sizes of `x`; its fields are `rank`, `0`, `1`, ... and `numel`.


def _tensor(name: str, sizes: Sequence[Number] | None, shape: Thing | None = None) -> Thing:
    if shape is None:
        fields: dict[str, Value] = {}
        if sizes is not None:
            fields["rank"] = whole(len(sizes), "long")
            fields |= {str(place): size for place, size in enumerate(sizes)}
        shape = Thing(_SHAPE, name, fields)
    return Thing(TENSOR, name, {"shape": shape})


def _known(machine: Machine, name: str, place: int, size: int) -> Number:
    """A size that a program passes. Equal ones are one: they belong together, and where one changes all must."""
    known = _memory(machine).given
    return known.setdefault((machine.entry, size), Number(variable(f"{name}_size{place}", size), "long"))


def _is_tensor(value: Value) -> bool:
    return isinstance(value, Thing) and value.kind == TENSOR


def _shape_of(tensor: Thing) -> Thing:
    return cast(Thing, tensor.fields["shape"])


def _fields(thing: Thing) -> dict[str, Value]:
    return cast(dict[str, Value], thing.fields)


def rank_of(machine: Machine, shape: Thing) -> int | None:
    """Number of dimensions, where the program says it: for good, or on the way that led here."""
    rank = shape.fields.get("rank")
    if not isinstance(rank, Number):
        return None
    if rank.term.is_constant and rank.value is not None:
        return int(rank.value)
    for term, answer in machine.conditions():
        if term.operator == ("==" if answer else "!=") and rank.term in term.operands:
            other = term.operands[1] if term.operands[0] == rank.term else term.operands[0]
            if other.is_constant and other.value is not None and 0 < other.value <= MAX_RANK:
                return int(other.value)
    return None


def _size(machine: Machine, shape: Thing, place: int) -> Value:
    fields, rank = _fields(shape), rank_of(machine, shape)
    if rank is not None:
        place = place + rank if place < 0 else place
        if not 0 <= place < rank:
            return Unknown(f"{shape.name} has no dimension {place}")
    if not -MAX_RANK <= place < MAX_RANK:
        return Unknown(f"{shape.name} has no dimension {place}")
    if str(place) in fields:
        return fields[str(place)]
    if rank is None and (place < 0 or "numel" in fields):
        # A size that is one of the others or a factor of what was handed out already: no number of its own.
        fields["unclear"] = NOTHING
        why = "is counted from the end" if place < 0 else "is asked for after the number of its elements"
        return Unknown(f"a size of {shape.name} {why}, and TORCH_CHECK does not say how many it has")
    fields[str(place)] = machine.free(f"{shape.name}_size{place}", "long")
    _memory(machine).sizes[cast(Number, fields[str(place)]).term] = (shape, place)
    return fields[str(place)]


def _rank(machine: Machine, shape: Thing) -> Value:
    fields = _fields(shape)
    if "rank" not in fields:
        fields["rank"] = machine.free(f"{shape.name}_dim", "long")
        _memory(machine).ranks[cast(Number, fields["rank"]).term] = shape
    return fields["rank"]


def _sizes(machine: Machine, shape: Thing) -> tuple[Number, ...] | None:
    """All sizes where the number of dimensions is known, or taken to be that of the sizes that were asked for."""
    fields, rank = shape.fields, rank_of(machine, shape)
    if rank is None and "unclear" in fields:
        return None
    if rank is None:
        seen = sorted(int(key) for key in fields if key.isdigit())
        if not seen or seen != list(range(len(seen))):
            return None
        rank = len(seen)
    found = [_size(machine, shape, place) for place in range(rank)]
    return (
        tuple(size for size in found if isinstance(size, Number)) if all(isinstance(s, Number) for s in found) else None
    )


def _product(sizes: Sequence[Number]) -> Term:
    term = constant(1)
    for size in sizes:
        term = build("*", (term, size.term), "long")
    return term


def _numel(machine: Machine, shape: Thing) -> Value:
    fields = _fields(shape)
    if "numel" in fields:
        return fields["numel"]
    sizes = _sizes(machine, shape)
    if sizes is not None and rank_of(machine, shape) is not None:
        return Number(_product(sizes), "long")
    if any(key.isdigit() for key in fields):
        return Unknown(f"the number of elements of {shape.name}: TORCH_CHECK does not say how many sizes it has")
    fields["numel"] = machine.free(f"{shape.name}_numel", "long")
    return fields["numel"]


def _pointer(machine: Machine, tensor: Thing, element: str) -> Value:
    """The memory of a tensor. Ways through the program that part may know different things of its sizes."""
    shape, fields = _shape_of(tensor), _fields(tensor)
    element = _ELEMENTS.get(element, element)
    sizes = _sizes(machine, shape) if "unclear" not in shape.fields else None
    count: Term | None = None if sizes is None else _product(sizes)
    numel = shape.fields.get("numel")
    if count is None and isinstance(numel, Number) and "unclear" not in shape.fields:
        count = numel.term
    width = type_width(element)
    key = f"memory {'' if count is None else count.key} {width}"
    known = fields.get(key)
    if not isinstance(known, Pointer):
        nbytes = None if count is None or width is None else build("*", (count, constant(width)), "long")
        parts = None if sizes is None else tuple(size.term for size in sizes)
        made = Block(tensor.name, nbytes, "device" if count is not None else "given", count=count, shape=parts)
        known = fields[key] = Pointer(made, constant(0), "void")
    return Pointer(known.block, constant(0), element)


def _like(machine: Machine, tensor: Thing, how: str) -> Thing:
    memory = _memory(machine)
    memory.made += 1
    return Thing(TENSOR, f"{how}_{memory.made}", {"shape": _shape_of(tensor)})


def _made(machine: Machine, sizes: Value, how: str) -> Value:
    memory = _memory(machine)
    memory.made += 1
    name = f"{how}_{memory.made}"
    match sizes:
        case Array(items=items) if all(isinstance(item, Number) for item in items):
            return _tensor(name, [cast(Number, item) for item in items])
        case Thing(kind="shape"):
            return Thing(TENSOR, name, {"shape": sizes})
        case Number():
            return _tensor(name, [sizes])
        case Array(items=items):
            reason = next((item.reason for item in items if isinstance(item, Unknown) and item.reason), "")
            return Unknown(reason or f"the sizes of torch::{how}(...)")
    return Unknown(f"the sizes of torch::{how}(...)")


def _method_of_shape(machine: Machine, shape: Thing, name: str, arguments: tuple[Value, ...]) -> Value | None:
    match name, arguments:
        case ("size", ()):
            return _rank(machine, shape)
        case ("[]" | "operator[]" | "at", (Number(value=float() | int() as place),)):
            return _size(machine, shape, int(place))
        case ("front", ()):
            return _size(machine, shape, 0)
        case ("back", ()):
            return _size(machine, shape, -1)
        case ("vec", ()):
            # It may be changed afterwards: an element inserted, the last one set.
            return Unknown(f"a list that began as the sizes of {shape.name}")
        case ("numel", ()):
            return _numel(machine, shape)
    return Unknown(f"the sizes of {shape.name}")


def _method_of_tensor(
    machine: Machine, tensor: Thing, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
) -> Value | None:
    shape = _shape_of(tensor)
    match name:
        case "size" | "sym_size":
            place = arguments[0].value if arguments and isinstance(arguments[0], Number) else None
            if place is None:
                # One of its sizes, and nobody knows which: what is told of the others would not fit to it.
                _fields(shape)["unclear"] = NOTHING
                return Unknown(f"a size of {tensor.name}")
            return _size(machine, shape, int(place))
        case "sizes" | "sym_sizes":
            return shape
        case "dim" | "ndimension":
            return _rank(machine, shape)
        case "numel" | "sym_numel":
            return _numel(machine, shape)
        case "data_ptr" | "mutable_data_ptr" | "const_data_ptr" | "data":
            if name == "data" and not template:
                return tensor
            return _pointer(machine, tensor, template[0] if template else "void")
        case "stride" | "sym_stride":
            return _stride(machine, shape, arguments)
        case "options":
            return Thing("options", tensor.name)
        case "view" | "reshape" | "flatten":
            return _viewed(machine, tensor, arguments if name != "flatten" else (whole(-1),))
        case "t" | "transpose" | "permute" | "expand" | "T":
            return Unknown(f"{tensor.name}.{name}(...), whose elements lie in another order")
        case _ if name.startswith("packed_accessor") or name in ("accessor", "generic_packed_accessor"):
            return Unknown(f"{tensor.name} is passed as an accessor, which a launch from here cannot fill")
        case _ if name in _TRUE:
            return whole(1, "bool")
        case _ if name in _SAME:
            return tensor
    return Unknown(f"{tensor.name}.{name}(...)")


def _stride(machine: Machine, shape: Thing, arguments: tuple[Value, ...]) -> Value:
    """Of a contiguous tensor: the product of the sizes further in."""
    place = arguments[0].value if arguments and isinstance(arguments[0], Number) else None
    rank = rank_of(machine, shape)
    if place is None or rank is None or not -rank <= place < rank:
        return Unknown(f"a stride of {shape.name}")
    inner = [_size(machine, shape, at) for at in range(int(place) % rank + 1, rank)]
    return Number(_product([cast(Number, size) for size in inner]), "long")


def _viewed(machine: Machine, tensor: Thing, arguments: tuple[Value, ...]) -> Value:
    """The same memory under other sizes."""
    items = arguments[0].items if len(arguments) == 1 and isinstance(arguments[0], Array) else arguments
    total = _numel(machine, _shape_of(tensor))
    numbers = [item for item in items if isinstance(item, Number)]
    open_places = [place for place, item in enumerate(numbers) if item.value == -1]
    if not isinstance(total, Number) or len(numbers) != len(items) or not items or len(open_places) > 1:
        return Unknown(f"{tensor.name} under other sizes")
    if open_places:
        others = [item for place, item in enumerate(numbers) if place != open_places[0]]
        rest = total if not others else binary("/", total, Number(_product(others), "long"))
        if not isinstance(rest, Number):
            return Unknown(f"{tensor.name} under other sizes")
        numbers[open_places[0]] = rest
    return _tensor(tensor.name, numbers)


# Checks and dispatch


def _check(machine: Machine, name: str, arguments: tuple[Value, ...]) -> Value:
    """What holds from here on. `x.dim() == 2` and `x.size(0) == y.size(0)` are kept with the tensors."""
    if not arguments:
        return NOTHING
    condition = binary("==", *arguments[:2]) if name == "TORCH_CHECK_EQ" and len(arguments) > 1 else arguments[0]
    if isinstance(condition, Number):
        for part in _conjuncts(condition.term):
            _learn(machine, part)
        machine.assume(condition, True)
    return NOTHING


def _conjuncts(term: Term) -> list[Term]:
    return [part for operand in term.operands for part in _conjuncts(operand)] if term.operator == "&&" else [term]


def _learn(machine: Machine, term: Term) -> None:
    if term.operator != "==":
        return
    ranks, sizes = _memory(machine).ranks, _memory(machine).sizes
    for one, other in (term.operands, term.operands[::-1]):
        if one in ranks and other.is_constant and other.value is not None and rank_of(machine, ranks[one]) is None:
            if 0 < other.value <= MAX_RANK:
                _fields(ranks[one])["rank"] = whole(int(other.value), "long")
        elif one in sizes and one != other:
            shape, place = sizes[one]
            if cast(Number, shape.fields[str(place)]).term == one:
                _fields(shape)[str(place)] = Number(other, "long")
                return


def _dispatch(machine: Machine, types: Sequence[str], arguments: tuple[Value, ...]) -> Value:
    body = next((value for value in reversed(arguments) if isinstance(value, Lambda)), None)
    if body is None:
        return Unknown("a dispatch without a lambda")
    for element in types:
        machine.run(body, (), {"scalar_t": element, "index_t": element})
    return NOTHING


def _own_name(name: str) -> str | None:
    """The last part of a name of torch's namespaces; None for other names."""
    parts = [part for part in name.replace(" ", "").removeprefix("const").split("::") if part]
    return parts[-1] if len(parts) > 1 and parts[0] in _SPACES else None
