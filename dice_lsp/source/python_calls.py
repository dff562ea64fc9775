"""What the program around the CUDA text of a Python file says of its functions, and of the kernels that these launch.

`Model.forward` is the reference of a kernel when `ModelNew.forward` returns the result of one function as it is, that
function launches this kernel alone and returns the one tensor that it makes, and the kernel writes nothing else.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from attrs import evolve, frozen

from dice_lsp.records import BufferSpec, Document, Kernel, Origin, Reference, Role
from dice_lsp.source.host_machine import HostLaunch
from dice_lsp.source.host_values import Pointer, constant
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.python_program import Tensor, callers, renamed
from dice_lsp.source.tokens import without_comments

_BINDING = re.compile(r"\.\s*def\s*\(\s*\"(\w+)\"\s*,\s*&?\s*(?:\w+\s*::\s*)*(\w+)")
_MAKER = re.compile(
    r"\b(?:torch|at)\s*::\s*(?:empty|zeros|ones|full|rand|randn|arange|tensor|from_blob)(?:_like)?\s*\(|\bclone\s*\("
)
_IN_PLACE = re.compile(r"\w+_(?:out)?\s*\(|\bcudaMem(?:cpy|set)\w*\s*\(|\bcublas\w+\s*\(|\bcudnn\w+\s*\(")
"""Calls that may change a tensor: those of torch that end in `_`, and copies."""
_EACH_ELEMENT = {
    "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "celu", "clamp",
    "clamp_max", "clamp_min", "clip", "clone", "contiguous", "cos", "cosh", "cuda", "detach", "div", "elu", "erf", "erfc", "exp",
    "exp2", "expm1", "float", "floor", "fmod", "frac", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
    "lerp", "log", "log10", "log1p", "log2", "logsigmoid", "maximum", "minimum", "mish", "mul", "neg", "pow", "reciprocal",
    "relu", "relu6", "remainder", "round", "rsqrt", "selu", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "softshrink",
    "softsign", "sqrt", "square", "sub", "tan", "tanh", "tanhshrink", "threshold", "true_divide", "trunc", "where", "xlogy",
    "pi", "inf", "e",
}  # fmt: skip
"""Functions of torch and of math that give each element from those in its place."""

Given = tuple[tuple[str, tuple[tuple[str, Tensor | int | float], ...]], ...]


@frozen
class PythonCalls:
    """What a Python program passes to functions of its CUDA text, and expects of them. A value, and hashable."""

    given: Given = ()
    """Function -> its parameter -> what the program passes."""
    references: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = ()
    """Function, the expression for what it returns, and the function's parameter for each name of the expression."""


def calls_of(document: Document) -> PythonCalls | None:
    """What the Python around a document's CUDA text says; None where there is no Python."""
    return None if document.file_text is None else _calls_of(document.file_text, document.text)


@lru_cache(maxsize=8)
def _calls_of(file_text: str, view: str) -> PythonCalls:
    functions = {function.name: function for function in parse(view).functions if function.is_host}
    names = {name: name for name in functions}
    names |= {match[1]: match[2] for match in _BINDING.finditer(view) if match[2] in functions}
    given: list[tuple[str, tuple[tuple[str, Tensor | int | float], ...]]] = []
    references: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
    for function, caller in callers(file_text, names).items():
        parameters = [parameter.name for parameter in functions[function].parameters]
        if len(parameters) != len(caller.arguments):
            continue
        pairs = zip(parameters, caller.arguments, strict=True)
        passed = tuple((parameter, value) for parameter, value in pairs if value is not None)
        if passed:
            given.append((function, passed))
        if caller.reference is not None:
            known = tuple((n, p) for n, p in zip(caller.names, parameters, strict=True) if n is not None)
            references.append((function, caller.reference, known))
    return PythonCalls(tuple(given), tuple(references))


@frozen
class _Use:
    """How a function that Python calls launches a kernel."""

    function: str
    labels: Mapping[str, str]
    """Buffer -> what the function calls the tensor; empty where it is only a part of one."""


def _uses(calls: PythonCalls, kernel: Kernel, launches: Sequence[HostLaunch]) -> list[_Use]:
    functions = {function for function, _ in calls.given} | {function for function, _, _ in calls.references}
    found = []
    for launch in launches:
        if launch.kernel != kernel.name or launch.entry not in functions:
            continue
        if launch.arguments is None or len(launch.arguments) != len(kernel.parameters):
            continue
        labels: dict[str, str] = {}
        for parameter, value in zip(kernel.parameters, launch.arguments, strict=True):
            if parameter.pointer:
                whole = isinstance(value, Pointer) and value.block is not None and value.offset == constant(0)
                labels[parameter.name] = value.block.label if whole else ""  # type: ignore[union-attr]
        found.append(_Use(launch.entry, labels))
    return found


def with_given_values(
    calls: PythonCalls, kernel: Kernel, launches: Sequence[HostLaunch], buffers: Sequence[BufferSpec]
) -> list[BufferSpec]:
    """Buffers with values as those that the program makes: a logarithm is given no negative numbers."""
    given = {function: dict(passed) for function, passed in calls.given}
    inits: dict[str, set[str]] = {}
    for use in _uses(calls, kernel, launches):
        for name, label in use.labels.items():
            tensor = given.get(use.function, {}).get(label)
            if isinstance(tensor, Tensor):
                inits.setdefault(name, set()).add(tensor.init)
    found = []
    for buffer in buffers:
        told = inits.get(buffer.name, set())
        plain = buffer.origin is not Origin.DIRECTIVE and buffer.role in (Role.IN, Role.IO) and buffer.init == "normal"
        found.append(evolve(buffer, init=next(iter(told))) if plain and len(told) == 1 and "" not in told else buffer)
    return found


def torch_reference(
    calls: PythonCalls,
    model: SourceModel,
    kernel: Kernel,
    launches: Sequence[HostLaunch],
    buffers: Sequence[BufferSpec],
) -> Reference | None:
    """`Model.forward` in the names of a kernel's parameters, where it is certain that the kernel computes it alone."""
    uses = _uses(calls, kernel, launches)
    for function, expression, names in calls.references:
        places = {(launch.kernel, launch.path, launch.offset) for launch in launches if launch.entry == function}
        use = next((use for use in uses if use.function == function), None)
        if use is None or len(places) != 1 or not _returns_what_it_makes(model, function):
            continue
        shapes = dict(next((passed for f, passed in calls.given if f == function), ()))
        parameters = shapes.keys() | {parameter for _, parameter in names}
        outputs = [name for name, label in use.labels.items() if label not in parameters]
        written = {buffer.name for buffer in buffers if buffer.role in (Role.OUT, Role.IO)}
        if len(outputs) != 1 or written != set(outputs) or "" in use.labels.values():
            continue
        taken = {name: place for name, label in names for place, held in use.labels.items() if held == label}
        text = renamed(expression, taken)
        tensors = [shapes.get(label) for name, label in names if name in taken]
        if text is None or not all(isinstance(tensor, Tensor) and tensor.init for tensor in tensors):
            # With values that the program never makes, `log` of a negative one for example, both may be right and differ.
            continue
        extents = {buffer.name: buffer.extents for buffer in buffers}
        ranks = [(extents.get(taken[name], ()), shapes.get(label)) for name, label in names if name in taken]
        if _each_element(text) or all(_has_shape(sizes, shape) for sizes, shape in ranks):
            return Reference("torch", text, Origin.INFERRED)
    return None


def _has_shape(extents: Sequence[str], shape: object) -> bool:
    """Whether a buffer is described with as many sizes as its tensor has."""
    factors = [factor for extent in extents for factor in extent.split(" * ")]
    if not isinstance(shape, Tensor) or len(factors) != len(shape.shape):
        return False
    pairs = zip(factors, shape.shape, strict=True)
    return all(factor == str(size) if factor.isdigit() else factor.isidentifier() for factor, size in pairs)


def _each_element(expression: str) -> bool:
    """Whether each element of the result comes from those in its place, so that shapes do not matter."""
    for node in ast.walk(ast.parse(expression, mode="eval")):
        match node:
            case ast.Attribute(attr=name, value=base):
                if name not in _EACH_ELEMENT and ast.unparse(base).split(".")[0] not in ("torch", "math"):
                    return False
                if name not in _EACH_ELEMENT and name not in ("nn", "functional", "special"):
                    return False
            case ast.BinOp(op=ast.MatMult()) | ast.Subscript() | ast.keyword(arg="dim" | "keepdim" | "axis"):
                return False
    return True


def _returns_what_it_makes(model: SourceModel, function: str) -> bool:
    """Whether a function makes one tensor, hands it to one kernel, and returns it."""
    found = [item for item in model.functions if item.name == function and item.is_host]
    if len(found) != 1:
        return False
    body = without_comments(model.text[found[0].body_start : found[0].body_end])
    returned = re.findall(r"\breturn\b([^;]*);", body)
    if len(returned) != 1 or len(_MAKER.findall(body)) != 1 or body.count("<<<") != 1 or _IN_PLACE.search(body):
        return False
    name = returned[0].strip()
    made = rf"\b{re.escape(name)}\s*=\s*(?:{_MAKER.pattern}|\w+\s*\.\s*clone\s*\()"
    if not name.isidentifier() or re.search(made, body) is None:
        return False
    # Made, handed to the kernel, returned: whatever else is done with it may change it.
    handed = len(re.findall(rf"\b{name}\s*\.\s*(?:mutable_)?data_ptr\b", body))
    return handed == 1 and len(re.findall(rf"\b{name}\b", body)) == 3
