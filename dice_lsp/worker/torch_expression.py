"""PyTorch expressions, evaluated by ourselves in numpy float64: the references of `ref torch:` clauses.

The text comes from a document, so it is never given to `eval`: Python's own parser makes a tree, and only the nodes,
functions and methods listed here are walked. Results are those of torch on double tensors (PyTorch documentation,
`torch`, `torch.Tensor` and `torch.nn.functional`); integers stay int64. What is not listed is refused by name.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from attrs import frozen
from numpy.lib.stride_tricks import sliding_window_view

from dice_lsp.worker.elements import Array

MAX_CHARACTERS = 4000
MAX_NODES = 500
MAX_ELEMENTS = 1 << 26
"""Largest tensor an expression may make on the way."""
MAX_PRODUCTS = 1 << 34
"""Most multiplications of one matrix product or convolution."""


class ExpressionFailed(ValueError):
    """The expression cannot be evaluated; the message is one phrase for the user."""


class Pair(NamedTuple):
    """What torch's `max(dim)`, `sort`, `topk` return."""

    values: Array
    indices: Array


def evaluate_torch(text: str, names: Mapping[str, Any]) -> tuple[Array, ...]:
    """The tensors that an expression gives: one, or several for a tuple.

    Args:
        text: e.g. `torch.relu(x) * a`.
        names: arrays (float64, int64 or bool) and Python numbers by name.

    Raises:
        ExpressionFailed: with the part that is not understood.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionFailed(f"the expression has {len(text)} characters, more than {MAX_CHARACTERS}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionFailed(f"`{text.strip()}` is no Python expression: {error}") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ExpressionFailed(f"the expression has more than {MAX_NODES} parts")
    try:
        with np.errstate(all="ignore"):
            result = _value(tree.body, names)
    except ExpressionFailed as error:
        raise ExpressionFailed(_one_line(error)) from None
    except (TypeError, ValueError, IndexError, ArithmeticError, KeyError, AttributeError, MemoryError) as error:
        raise ExpressionFailed(f"`{text.strip()}` cannot be evaluated: {_one_line(error)}") from None
    except RecursionError:
        raise ExpressionFailed("the expression is nested too deeply") from None
    parts = result if isinstance(result, (tuple, list)) and not isinstance(result, Pair) else (result,)
    if isinstance(result, Pair):
        parts = (result.values,)
    tensors = []
    for part in parts:
        if not isinstance(part, (np.ndarray, np.generic, int, float)):
            raise ExpressionFailed(f"`{text.strip()}` gives {type(part).__name__}, not a tensor")
        tensors.append(np.asarray(part))
    return tuple(tensors)


def _one_line(error: Exception) -> str:
    """An error's message as one phrase: numpy prints arrays over many lines."""
    words = " ".join(str(error).split()).rstrip(".")
    return words if len(words) <= 300 else words[:297] + "..."


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Constant(value=value) if value is Ellipsis:
            return value
        case ast.Name(id=name):
            if name in names:
                return names[name]
            raise ExpressionFailed(f"`{name}` is not a buffer, scalar or size of this kernel")
        case ast.Tuple(elts=items):
            return tuple(_value(item, names) for item in items)
        case ast.List(elts=items):
            return [_value(item, names) for item in items]
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, _value(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(op, _value(left, names), _value(right, names))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition = _value(test, names)
            if np.size(condition) != 1:
                raise ExpressionFailed("`if` needs one value; use torch.where for tensors")
            return _value(body if condition else orelse, names)
        case ast.Subscript(value=base, slice=index):
            return _index(_value(base, names), _slices(index, names))
        case ast.Attribute():
            return _attribute(node, names)
        case ast.Call():
            return _call(node, names)
    raise ExpressionFailed(f"`{ast.unparse(node)}` is not understood here")


def _slices(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Tuple(elts=items):
            return tuple(_slices(item, names) for item in items)
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(None if part is None else int(_value(part, names)) for part in (lower, upper, step)))
    return _value(node, names)


def _index(base: Any, index: Any) -> Any:
    if isinstance(base, (tuple, list)):
        return base[int(index)]
    # torch indexes with integer tensors and bool masks as numpy does.
    return _array(base)[index]


_DOTTED = {
    "torch",
    "F",
    "nn",
    "math",
    "torch.nn",
    "torch.nn.functional",
    "nn.functional",
    "torch.linalg",
    "torch.special",
}
_CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan, "e": math.e, "newaxis": None}
_DTYPES = {
    "float", "float32", "float64", "double", "half", "float16", "bfloat16", "int", "int32", "int64", "long", "int8",
    "uint8", "int16", "short", "bool",
}  # fmt: skip


@frozen
class _Dtype:
    name: str


def _dotted(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=base, attr=attribute):
            head = _dotted(base)
            return None if head is None else f"{head}.{attribute}"
    return None


def _module_of(node: ast.Attribute, names: Mapping[str, Any]) -> str | None:
    """`torch.nn.functional` for `torch.nn.functional.relu`; None when the base is a value."""
    base = _dotted(node.value)
    if base is None or base.split(".")[0] in names:
        return None
    return base if base in _DOTTED else None


def _attribute(node: ast.Attribute, names: Mapping[str, Any]) -> Any:
    if (module := _module_of(node, names)) is not None:
        if node.attr in _CONSTANTS:
            return _CONSTANTS[node.attr]
        if node.attr in _DTYPES and module == "torch":
            return _Dtype(node.attr)
        raise ExpressionFailed(f"{module}.{node.attr} is not understood here; see the list of functions in the manual")
    base = _value(node.value, names)
    if isinstance(base, Pair) and node.attr in ("values", "indices"):
        return getattr(base, node.attr)
    tensor = _array(base)
    match node.attr:
        case "T" | "H":
            return tensor.T
        case "mT" | "mH":
            return np.swapaxes(tensor, -1, -2)
        case "shape":
            return tensor.shape
        case "ndim":
            return tensor.ndim
    raise ExpressionFailed(f"the attribute `.{node.attr}` is not understood here")


def _call(node: ast.Call, names: Mapping[str, Any]) -> Any:
    positional: list[Any] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            positional += list(_value(argument.value, names))
        else:
            positional.append(_value(argument, names))
    keywords: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ExpressionFailed("`**` is not understood here")
        keywords[_KEYWORDS.get(keyword.arg, keyword.arg)] = _value(keyword.value, names)
    match node.func:
        case ast.Name(id=name):
            if name not in _BUILTINS or name in names:
                raise ExpressionFailed(f"`{name}(...)` is not understood here; write torch.{name} if torch has it")
            return _BUILTINS[name](*positional, **keywords)
        case ast.Attribute(attr=name) as function:
            module = _module_of(function, names)
            if module is None:
                positional.insert(0, _receiver(function, names))
                spelled = f"the method `.{name}()`"
            else:
                spelled = f"{module}.{name}"
            found = FUNCTIONS.get("norm" if (module, name) == ("torch.linalg", "vector_norm") else name)
            if found is None:
                raise ExpressionFailed(f"{spelled} is not understood here; see the list of functions in the manual")
            _room_for(positional)
            try:
                return found(*positional, **keywords)
            except TypeError as error:
                raise ExpressionFailed(f"{spelled}: {_plain(error)}") from None
    raise ExpressionFailed(f"`{ast.unparse(node.func)}(...)` is not understood here")


def _receiver(function: ast.Attribute, names: Mapping[str, Any]) -> Any:
    base = _value(function.value, names)
    return base if isinstance(base, (tuple, Pair)) else _array(base)


def _plain(error: TypeError) -> str:
    """Python's message about arguments, without the name of our function in it."""
    return str(error).split("() ", 1)[-1]


_KEYWORDS = {"axis": "dim", "keepdims": "keepdim", "axes": "dims", "input": "self", "a_min": "min", "a_max": "max"}


def _unary(op: ast.unaryop, value: Any) -> Any:
    match op:
        case ast.USub():
            return -value
        case ast.UAdd():
            return value
        case ast.Invert():
            return ~value
    return np.logical_not(value)


def _binary(op: ast.operator, a: Any, b: Any) -> Any:
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and isinstance(op, ast.Add):
        return tuple(a) + tuple(b)
    if isinstance(a, (str, tuple, list, type(None))) or isinstance(b, (str, tuple, list, type(None))):
        raise ExpressionFailed("an operator stands beside something that is no number or tensor")
    if isinstance(op, ast.MatMult):
        return _matmul(a, b)
    _room(np.broadcast_shapes(np.shape(a), np.shape(b)))
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return np.subtract(a, b) if not _both_bool(a, b) else np.logical_xor(a, b)
        case ast.Mult():
            return a * b
        case ast.Div():
            return np.true_divide(a, b)
        case ast.FloorDiv():
            return np.floor_divide(a, b)
        case ast.Mod():
            return np.mod(a, b)
        case ast.Pow():
            return _power(a, b)
        case ast.BitAnd():
            return np.bitwise_and(a, b)
        case ast.BitOr():
            return np.bitwise_or(a, b)
        case ast.BitXor():
            return np.bitwise_xor(a, b)
        case ast.LShift():
            return np.left_shift(a, b)
        case ast.RShift():
            return np.right_shift(a, b)
    raise ExpressionFailed(f"the operator {type(op).__name__} is not understood here")


def _both_bool(a: Any, b: Any) -> bool:
    return np.asarray(a).dtype == bool and np.asarray(b).dtype == bool


def _power(a: Any, b: Any) -> Any:
    integers = np.asarray(a).dtype.kind in "iub" and np.asarray(b).dtype.kind in "iub"
    if integers and np.min(b) >= 0 and np.max(b) < 64:
        return np.power(np.asarray(a, np.int64), b)
    return np.power(np.asarray(a, np.float64), b)


def _compare(op: ast.cmpop, a: Any, b: Any) -> Any:
    table: dict[type[ast.cmpop], Callable[..., Any]] = {
        ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal,
        ast.Eq: np.equal, ast.NotEq: np.not_equal,
    }  # fmt: skip
    if (function := table.get(type(op))) is None:
        raise ExpressionFailed(f"the comparison {type(op).__name__} is not understood here")
    _room(np.broadcast_shapes(np.shape(a), np.shape(b)))
    return function(a, b)


def _array(value: Any) -> Array:
    if isinstance(value, (np.ndarray, np.generic, int, float)):
        return np.asarray(value)
    raise ExpressionFailed(f"a tensor is needed where a {type(value).__name__} stands")


def _room(shape: Sequence[int]) -> tuple[int, ...]:
    if math.prod(shape) > MAX_ELEMENTS or any(size > MAX_ELEMENTS for size in shape):
        raise ExpressionFailed(f"a tensor of shape {tuple(shape)} is too large here")
    return tuple(int(size) for size in shape)


def _room_for(arguments: Sequence[Any]) -> None:
    """Tensors that broadcast against each other must not make a huge one."""
    shapes = [argument.shape for argument in arguments if isinstance(argument, np.ndarray)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return  # they meet in another way, a product for one, which has its own limit
    _room(shape)


def _work(products: int) -> None:
    if products > MAX_PRODUCTS:
        raise ExpressionFailed(f"{products} multiplications are too many here")


def _float(value: Any) -> Array:
    array = _array(value)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _axis(dim: Any) -> Any:
    return tuple(int(d) for d in dim) if isinstance(dim, (tuple, list)) else None if dim is None else int(dim)


def _shape(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """`view(2, 3)` and `view((2, 3))` mean the same."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple(int(size) for size in sizes)


# Elementwise


def _map(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(self: Any) -> Any:
        return function(_float(self))

    return apply


def _keep(function: Callable[..., Any]) -> Callable[..., Any]:
    """For functions that leave integers integers."""

    def apply(self: Any) -> Any:
        return function(_array(self))

    return apply


def _two(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(self: Any, other: Any) -> Any:
        _room(np.broadcast_shapes(np.shape(self), np.shape(other)))
        return function(self, other)

    return apply


_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)
_lgamma = np.frompyfunc(math.lgamma, 1, 1)


def erf(values: Any) -> Array:
    """The error function of every number."""
    return np.asarray(_erf(_float(values)), np.float64)


def _sigmoid(self: Any) -> Array:
    # exp of a negative number only, so that nothing overflows.
    decay = np.exp(-np.abs(_float(self)))
    return np.where(np.isnan(_float(self)), np.nan, np.where(_float(self) >= 0, 1 / (1 + decay), decay / (1 + decay)))


def _softplus(self: Any, beta: float = 1.0, threshold: float = 20.0) -> Array:
    x = _float(self)
    return np.where(x * beta > threshold, x, np.log1p(np.exp(np.minimum(x * beta, threshold))) / beta)


def _gelu(self: Any, approximate: str = "none") -> Array:
    x = _float(self)
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    if approximate != "none":
        raise ExpressionFailed(f"gelu: approximate={approximate!r} is not known")
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def _silu(self: Any) -> Array:
    return np.asarray(_float(self) * _sigmoid(self))


def _elu(self: Any, alpha: float = 1.0) -> Array:
    x = _float(self)
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(self: Any, alpha: float = 1.0) -> Array:
    x = _float(self)
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _selu(self: Any) -> Array:
    return np.asarray(1.0507009873554805 * _elu(self, 1.6732632423543772))


def _leaky_relu(self: Any, negative_slope: float = 0.01) -> Array:
    x = _float(self)
    return np.where(x > 0, x, negative_slope * x)


def _prelu(self: Any, weight: Any) -> Array:
    x, slope = _float(self), _float(weight)
    if slope.size > 1:
        slope = slope.reshape([-1] + [1] * (x.ndim - 2)) if x.ndim > 1 else slope
    return np.where(x > 0, x, slope * x)


def _relu(self: Any) -> Array:
    return np.maximum(_array(self), 0)


def _hardtanh(self: Any, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    return np.clip(_float(self), min_val, max_val)


def _hardsigmoid(self: Any) -> Array:
    return np.clip(_float(self) / 6 + 0.5, 0, 1)


def _hardswish(self: Any) -> Array:
    return np.asarray(_float(self) * np.clip(_float(self) + 3, 0, 6) / 6)


def _hardshrink(self: Any, lambd: float = 0.5) -> Array:
    return np.where(np.abs(_float(self)) > lambd, _float(self), 0.0)


def _softshrink(self: Any, lambd: float = 0.5) -> Array:
    x = _float(self)
    return np.sign(x) * np.maximum(np.abs(x) - lambd, 0)


def _threshold(self: Any, threshold: float, value: float) -> Array:
    return np.where(_float(self) > threshold, _float(self), value)


def _logsigmoid(self: Any) -> Array:
    x = _float(self)
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _clamp(self: Any, min: Any = None, max: Any = None) -> Array:
    x = _array(self)
    if min is not None:
        x = np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def _where(self: Any, a: Any, b: Any) -> Array:
    if isinstance(self, np.ndarray) and self.dtype != bool:
        raise ExpressionFailed("where: the condition must be a comparison")
    return np.asarray(np.where(self, a, b))


def _where_method(self: Any, a: Any = None, b: Any = None) -> Any:
    """`torch.where(c, a, b)` and `a.where(c, b)` share a name; the condition is the bool one."""
    if np.asarray(self).dtype != bool and np.asarray(a).dtype == bool:
        return _where(a, self, b)
    return _where(self, a, b)


def _masked_fill(self: Any, mask: Any, value: Any) -> Array:
    return np.asarray(np.where(mask, value, self))


def _lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


def _add(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _binary(ast.Add(), self, _binary(ast.Mult(), alpha, other) if alpha != 1 else other)


def _sub(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _binary(ast.Sub(), self, _binary(ast.Mult(), alpha, other) if alpha != 1 else other)


def _div(self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    quotient = np.true_divide(self, other)
    if rounding_mode == "floor":
        return np.floor_divide(self, other)
    if rounding_mode == "trunc":
        return np.trunc(quotient)
    return quotient


def _round(self: Any, decimals: int = 0) -> Any:
    return np.round(_array(self), decimals)


def _addcmul(self: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return self + value * np.multiply(a, b)


def _addcdiv(self: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return self + value * np.true_divide(a, b)


def _glu(self: Any, dim: int = -1) -> Array:
    a, b = np.split(_float(self), 2, dim)
    return np.asarray(a * _sigmoid(b))


def _nan_to_num(self: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    return np.nan_to_num(_float(self), nan=nan, posinf=posinf, neginf=neginf)


# Reductions


def _sum(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return np.sum(_array(self), axis=_axis(dim), keepdims=keepdim)


def _mean(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return np.mean(_float(self), axis=_axis(dim), keepdims=keepdim)


def _prod(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return np.prod(_array(self), axis=_axis(dim), keepdims=keepdim)


def _extreme(best: Any, arg: Any, pairwise: Any) -> Callable[..., Any]:
    def apply(self: Any, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
        if other is None and isinstance(dim, (np.ndarray, float)):
            other, dim = dim, None
        if other is not None:
            return pairwise(self, other)
        if dim is None:
            return best(_array(self))
        axis = int(dim)
        return Pair(best(_array(self), axis=axis, keepdims=keepdim), arg(_array(self), axis=axis, keepdims=keepdim))

    return apply


def _amax(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.max(_array(self), axis=_axis(dim), keepdims=keepdim)


def _amin(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.min(_array(self), axis=_axis(dim), keepdims=keepdim)


def _argmax(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.argmax(_array(self), axis=_axis(dim), keepdims=keepdim)


def _argmin(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.argmin(_array(self), axis=_axis(dim), keepdims=keepdim)


def _var(
    self: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: int | None = None
) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim  # torch.var(x, False)
    ddof = correction if correction is not None else int(unbiased)
    return np.var(_float(self), axis=_axis(dim), ddof=ddof, keepdims=keepdim)


def _std(
    self: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: int | None = None
) -> Any:
    return np.sqrt(_var(self, dim, unbiased, keepdim, correction))


def _norm(self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, ord: Any = None) -> Any:
    order = p if ord is None else ord
    size = np.abs(_float(self))
    axis = _axis(dim)
    if order in ("fro", 2, 2.0, None):
        return np.sqrt(np.sum(size * size, axis=axis, keepdims=keepdim))
    if order == math.inf:
        return np.max(size, axis=axis, keepdims=keepdim)
    if order == 0:
        return np.sum(size != 0, axis=axis, keepdims=keepdim).astype(np.float64)
    if not isinstance(order, (int, float)):
        raise ExpressionFailed(f"norm: p={order!r} is not known")
    return np.power(np.sum(np.power(size, order), axis=axis, keepdims=keepdim), 1.0 / order)


def _logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    x, axis = _float(self), _axis(dim)
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdim else np.squeeze(total, axis)


def _softmax(self: Any, dim: Any = None, dtype: Any = None) -> Array:
    if dim is None:
        raise ExpressionFailed("softmax needs dim")
    x = _float(self)
    weights = np.exp(x - np.max(x, axis=_axis(dim), keepdims=True))
    return np.asarray(weights / np.sum(weights, axis=_axis(dim), keepdims=True))


def _softmin(self: Any, dim: Any = None) -> Array:
    return _softmax(-_float(self), dim)


def _log_softmax(self: Any, dim: Any = None, dtype: Any = None) -> Array:
    if dim is None:
        raise ExpressionFailed("log_softmax needs dim")
    return np.asarray(_float(self) - _logsumexp(self, dim, keepdim=True))


def _median(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    # torch takes the lower of the two middle values.
    x = _array(self).reshape(-1) if dim is None else _array(self)
    axis = 0 if dim is None else int(dim)
    order = np.argsort(x, axis=axis, kind="stable")
    indices = np.take(order, [(x.shape[axis] - 1) // 2], axis=axis)
    values = np.take_along_axis(x, indices, axis)
    if dim is None:
        return values[0]
    return Pair(values, indices) if keepdim else Pair(np.squeeze(values, axis), np.squeeze(indices, axis))


def _count_nonzero(self: Any, dim: Any = None) -> Any:
    return np.count_nonzero(_array(self), axis=_axis(dim))


def _any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.any(_array(self), axis=_axis(dim), keepdims=keepdim)


def _all(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return np.all(_array(self), axis=_axis(dim), keepdims=keepdim)


# Scans, order and counting


def _cumsum(self: Any, dim: int, dtype: Any = None) -> Array:
    return np.cumsum(_array(self), axis=int(dim))


def _cumprod(self: Any, dim: int, dtype: Any = None) -> Array:
    return np.cumprod(_array(self), axis=int(dim))


def _running(function: Any, reached: Any) -> Callable[..., Any]:
    def apply(self: Any, dim: int) -> Pair:
        x, axis = _array(self), int(dim)
        values = function.accumulate(x, axis=axis)
        place = np.arange(x.shape[axis]).reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
        return Pair(values, np.maximum.accumulate(np.where(reached(x, values), place, 0), axis=axis))

    return apply


def _sort(self: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Pair:
    indices = _argsort(self, dim, descending)
    return Pair(np.take_along_axis(_array(self), indices, int(dim)), indices)


def _argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    x = _array(self)
    if descending:
        # Sorting the reversed tensor keeps equal numbers in their order.
        flipped = np.argsort(np.flip(x, int(dim)), axis=int(dim), kind="stable")
        return np.flip(x.shape[int(dim)] - 1 - flipped, int(dim))
    return np.argsort(x, axis=int(dim), kind="stable")


def _topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    _room((int(k),))
    indices = np.take(_argsort(self, dim, descending=largest), np.arange(int(k)), axis=int(dim))
    return Pair(np.take_along_axis(_array(self), indices, int(dim)), indices)


def _bincount(self: Any, weights: Any = None, minlength: int = 0) -> Array:
    x = _array(self).reshape(-1)
    if x.size:
        _room((int(x.max()) + 1,))
    return np.bincount(x, None if weights is None else _float(weights).reshape(-1), _room((int(minlength),))[0])


def _histc(self: Any, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    x = _float(self).reshape(-1)
    low, high = (float(x.min()), float(x.max())) if min == max == 0 else (float(min), float(max))
    if low == high:
        low, high = low - 1, high + 1
    counts, _ = np.histogram(x, _room((int(bins),))[0], (low, high))
    return counts


def _diff(self: Any, n: int = 1, dim: int = -1) -> Array:
    return np.diff(_array(self), int(n), int(dim))


def _searchsorted(self: Any, values: Any, right: bool = False) -> Array:
    return np.searchsorted(_array(self), _array(values), "right" if right else "left")


# Shape


def _reshape(self: Any, *sizes: Any, shape: Any = ()) -> Array:
    return np.reshape(_array(self), _shape(sizes or (shape,)))


def _flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Array:
    x = _array(self)
    first, last = int(start_dim) % max(x.ndim, 1), int(end_dim) % max(x.ndim, 1)
    return x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])


def _transpose(self: Any, dim0: int, dim1: int) -> Array:
    return np.swapaxes(_array(self), int(dim0), int(dim1))


def _t(self: Any) -> Array:
    return _array(self).T


def _permute(self: Any, *sizes: Any, dims: Any = ()) -> Array:
    return np.transpose(_array(self), _shape(sizes or (dims,)))


def _squeeze(self: Any, dim: Any = None) -> Array:
    x = _array(self)
    if dim is None:
        return np.squeeze(x)
    return np.squeeze(x, int(dim)) if x.shape[int(dim)] == 1 else x


def _unsqueeze(self: Any, dim: int) -> Array:
    return np.expand_dims(_array(self), int(dim))


def _expand(self: Any, *sizes: Any) -> Array:
    x = _array(self)
    wanted = _shape(sizes)
    own = (1,) * (len(wanted) - x.ndim) + x.shape
    return np.broadcast_to(x, _room([o if w == -1 else w for o, w in zip(own, wanted, strict=True)]))


def _repeat(self: Any, *sizes: Any) -> Array:
    counts = _room(_shape(sizes))
    _room((math.prod(counts) * _array(self).size,))
    return np.tile(_array(self), counts)


def _repeat_interleave(self: Any, repeats: int, dim: Any = None) -> Array:
    _room((int(repeats) * _array(self).size,))
    return np.repeat(_array(self), int(repeats), _axis(dim))


def _flip(self: Any, *sizes: Any, dims: Any = ()) -> Array:
    return np.flip(_array(self), _shape(sizes or (dims,)))


def _roll(self: Any, shifts: Any, dims: Any = None) -> Array:
    return np.roll(_array(self), _axis(shifts), _axis(dims))


def _cat(self: Any, dim: int = 0) -> Array:
    parts = [_array(part) for part in self]
    _room((sum(part.size for part in parts),))
    return np.concatenate(parts, int(dim))


def _stack(self: Any, dim: int = 0) -> Array:
    parts = [_array(part) for part in self]
    _room((sum(part.size for part in parts),))
    return np.stack(parts, int(dim))


def _chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    size = -(-_array(self).shape[int(dim)] // int(chunks))
    return _split(self, size, dim)


def _split(self: Any, split_size: Any, dim: int = 0) -> tuple[Array, ...]:
    x = _array(self)
    length = x.shape[int(dim)]
    if isinstance(split_size, (tuple, list)):
        ends = np.cumsum([int(size) for size in split_size])[:-1]
    else:
        _room((length // max(int(split_size), 1),))
        ends = np.arange(int(split_size), length, int(split_size))
    return tuple(np.split(x, ends, int(dim)))


def _unbind(self: Any, dim: int = 0) -> tuple[Array, ...]:
    return tuple(np.moveaxis(_array(self), int(dim), 0))


def _narrow(self: Any, dim: int, start: int, length: int) -> Array:
    _room((int(length),))
    return np.take(_array(self), np.arange(int(start), int(start) + int(length)), int(dim))


def _index_select(self: Any, dim: int, index: Any) -> Array:
    return np.take(_array(self), _array(index), int(dim))


def _gather(self: Any, dim: int, index: Any) -> Array:
    x, places, axis = _array(self), _array(index), int(dim)
    cut = tuple(slice(None) if a == axis % x.ndim else slice(0, size) for a, size in enumerate(places.shape))
    return np.take_along_axis(x[cut], places, axis)


def _scatter(add: bool) -> Callable[..., Any]:
    def apply(self: Any, dim: int, index: Any, src: Any) -> Array:
        x, places = np.array(_array(self)), _array(index)
        where: list[Array] = list(np.indices(places.shape))
        where[int(dim)] = places
        values = (
            np.broadcast_to(src, places.shape) if np.ndim(src) == 0 else _array(src)[tuple(map(slice, places.shape))]
        )
        if add:
            np.add.at(x, tuple(where), values)
        else:
            x[tuple(where)] = values
        return x

    return apply


def _index_add(self: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Array:
    x = np.moveaxis(np.array(_array(self)), int(dim), 0)
    np.add.at(x, _array(index), alpha * np.moveaxis(_array(source), int(dim), 0))
    return np.moveaxis(x, 0, int(dim))


def _take(self: Any, index: Any) -> Array:
    return _array(self).reshape(-1)[_array(index)]


def _tril(self: Any, diagonal: int = 0) -> Array:
    return np.tril(_matrix(self), int(diagonal))


def _triu(self: Any, diagonal: int = 0) -> Array:
    return np.triu(_matrix(self), int(diagonal))


def _matrix(value: Any) -> Array:
    if np.ndim(value) < 2:
        raise ExpressionFailed("a matrix is needed where a vector stands")
    return _array(value)


def _diag(self: Any, diagonal: int = 0) -> Array:
    x = _array(self)
    if x.ndim == 1:
        _room((x.size + abs(int(diagonal)),) * 2)
    return np.diag(x, int(diagonal))


def _size(self: Any, dim: Any = None) -> Any:
    return _array(self).shape if dim is None else _array(self).shape[int(dim)]


def _pad(self: Any, pad: Any, mode: str = "constant", value: float = 0.0) -> Array:
    x = _array(self)
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    _room([size + before + after for size, (before, after) in zip(x.shape, widths, strict=True)])
    cut = tuple(slice(max(0, -b), size - max(0, -a)) for size, (b, a) in zip(x.shape, widths, strict=True))
    widths = [(max(0, b), max(0, a)) for b, a in widths]
    match mode:
        case "constant":
            return np.pad(x[cut], widths, constant_values=value or 0)
        case "reflect":
            return np.pad(x[cut], widths, "reflect")
        case "replicate":
            return np.pad(x[cut], widths, "edge")
        case "circular":
            return np.pad(x[cut], widths, "wrap")
    raise ExpressionFailed(f"pad: mode={mode!r} is not known")


# Making tensors


def _arange(*bounds: Any, dtype: Any = None, device: Any = None) -> Array:
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
    _room((max(0, math.ceil((end - start) / step)),))
    return np.arange(start, end, step)


def _linspace(start: float, end: float, steps: int, dtype: Any = None) -> Array:
    return np.linspace(start, end, _room((int(steps),))[0])


def _full(self: Any, fill_value: Any, dtype: Any = None) -> Array:
    return np.asarray(np.full(_room(_shape((self,))), fill_value))


def _zeros(*sizes: Any, dtype: Any = None) -> Array:
    return np.zeros(_room(_shape(sizes)))


def _ones(*sizes: Any, dtype: Any = None) -> Array:
    return np.ones(_room(_shape(sizes)))


def _like(value: float) -> Callable[..., Any]:
    def apply(self: Any, dtype: Any = None) -> Array:
        return np.full_like(_array(self), value)

    return apply


def _full_like(self: Any, fill_value: Any, dtype: Any = None) -> Array:
    return np.asarray(np.full_like(_array(self), fill_value))


def _eye(n: int, m: int | None = None, dtype: Any = None) -> Array:
    _room((int(n), int(n if m is None else m)))
    return np.eye(int(n), None if m is None else int(m))


def _tensor(self: Any, dtype: Any = None) -> Array:
    return np.asarray(self) if dtype is None else _cast(np.asarray(self), dtype)


def _cast(self: Any, *kinds: Any, dtype: Any = None, **_ignored: Any) -> Array:
    kind = dtype if dtype is not None else kinds[0] if kinds else None
    name = kind.name if isinstance(kind, _Dtype) else kind
    x = _array(self)
    if name in ("half", "float16"):
        return x.astype(np.float16).astype(np.float64)
    if name in ("float", "float32", "double", "float64", "bfloat16"):
        # Rounding to float is left to the comparison: a reference is as exact as it can be.
        return x.astype(np.float64)
    if name == "bool":
        return np.asarray(x != 0)
    if name in ("int", "int32", "int64", "long", "short", "int16"):
        return x.astype(np.int64)
    if name in ("int8", "uint8"):
        return x.astype(np.int64).astype(name).astype(np.int64)
    if isinstance(name, str):
        return x  # a device's name: `.to("cuda")`
    raise ExpressionFailed("the dtype is not understood here")


def _casts_to(name: str) -> Callable[..., Any]:
    def apply(self: Any) -> Array:
        return _cast(self, _Dtype(name))

    return apply


def _itself(self: Any) -> Array:
    return _array(self)


# Linear algebra


def _matmul(self: Any, other: Any) -> Any:
    a, b = _array(self), _array(other)
    if a.ndim == 0 or b.ndim == 0:
        raise ExpressionFailed("matmul needs tensors with at least one dim")
    columns = b.shape[-1] if b.ndim > 1 else 1
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2] if a.ndim > 1 else 1
    _room((*batch, rows, columns))
    _work(math.prod(batch) * rows * columns * a.shape[-1])
    return np.matmul(a, b)


def _dot(self: Any, other: Any) -> Any:
    return np.dot(_array(self).reshape(-1), _array(other).reshape(-1))


def _outer(self: Any, other: Any) -> Array:
    _room((_array(self).size, _array(other).size))
    return np.outer(_array(self), _array(other))


def _kron(self: Any, other: Any) -> Array:
    _room((_array(self).size, _array(other).size))
    return np.kron(_array(self), _array(other))


def _addmm(self: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * _array(self) + alpha * _matmul(a, b)


def _einsum(equation: str, *tensors: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    arrays = [_array(tensor) for tensor in tensors]
    sizes: dict[str, int] = {}
    for letters, array in zip(equation.replace(" ", "").split("->")[0].split(","), arrays, strict=True):
        if "." in letters:
            raise ExpressionFailed("einsum: `...` is not understood here")
        sizes.update(zip(letters, array.shape, strict=True))
    _work(math.prod(sizes.values()))
    if "->" in equation:
        _room([sizes[letter] for letter in equation.replace(" ", "").split("->")[1]])
    return np.einsum(equation, *arrays)


def _linear(self: Any, weight: Any, bias: Any = None) -> Any:
    product = _matmul(self, _array(weight).T)
    return product if bias is None else product + bias


def _cdist(self: Any, other: Any, p: float = 2.0) -> Any:
    a, b = _float(self), _float(other)
    _room((*a.shape[:-1], b.shape[-2], a.shape[-1]))
    return _norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def _trace(self: Any) -> Any:
    return np.trace(_array(self))


# torch.nn.functional


def _layer_norm(self: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    x = _float(self)
    axes = tuple(range(x.ndim - len(_shape((normalized_shape,))), x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _rms_norm(self: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    x = _float(self)
    axes = tuple(range(x.ndim - len(_shape((normalized_shape,))), x.ndim))
    y = x / np.sqrt((x * x).mean(axes, keepdims=True) + (2.0**-23 if eps is None else eps))
    return y if weight is None else y * weight


def _group_norm(self: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    x = _float(self)
    grouped = x.reshape(x.shape[0], int(num_groups), -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    y = (centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)).reshape(x.shape)
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    y = y if weight is None else y * _array(weight).reshape(per_channel)
    return y if bias is None else y + _array(bias).reshape(per_channel)


def _batch_norm(
    self: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    x = _float(self)
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axes) if training else _float(running_mean)
    variance = x.var(axes) if training else _float(running_var)
    y = (x - mean.reshape(per_channel)) / np.sqrt(variance.reshape(per_channel) + eps)
    y = y if weight is None else y * _array(weight).reshape(per_channel)
    return y if bias is None else y + _array(bias).reshape(per_channel)


def _normalize(self: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    return _float(self) / np.maximum(_norm(self, p, dim, keepdim=True), eps)


def _cosine_similarity(self: Any, other: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    a, b = _float(self), _float(other)
    sizes = np.maximum(_norm(a, 2, dim), eps) * np.maximum(_norm(b, 2, dim), eps)
    return np.sum(a * b, axis=int(dim)) / sizes


def _per_dim(value: Any, dims: int) -> tuple[int, ...]:
    return tuple(int(v) for v in value) if isinstance(value, (tuple, list)) else (int(value),) * dims


def _conv(dims: int) -> Callable[..., Any]:
    def apply(
        self: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        x, kernel = _float(self), _float(weight)
        single = x.ndim == dims + 1
        x = x[None] if single else x
        if x.ndim != dims + 2 or kernel.ndim != dims + 2:
            raise ExpressionFailed(f"conv{dims}d needs an input of {dims + 2} dims and a weight of {dims + 2} dims")
        steps, gaps = _per_dim(stride, dims), _per_dim(dilation, dims)
        if padding in ("same", "valid"):
            totals = [
                gap * (size - 1) if padding == "same" else 0 for gap, size in zip(gaps, kernel.shape[2:], strict=True)
            ]
            edges = [(total // 2, total - total // 2) for total in totals]
        else:
            edges = [(pad, pad) for pad in _per_dim(padding, dims)]
        x = np.pad(x, [(0, 0), (0, 0), *edges])
        spans = tuple(gap * (size - 1) + 1 for gap, size in zip(gaps, kernel.shape[2:], strict=True))
        windows = sliding_window_view(x, spans, axis=tuple(range(2, 2 + dims)))
        pick: Any = (
            slice(None),
            slice(None),
            *(slice(None, None, s) for s in steps),
            *(slice(None, None, g) for g in gaps),
        )
        windows = np.asarray(windows[pick])
        _work(math.prod(windows.shape) * kernel.shape[0] // int(groups))
        _room((x.shape[0], kernel.shape[0], *windows.shape[2 : 2 + dims]))
        letters = "uvwxyz"
        equation = f"nc{letters[:dims]}{letters[3 : 3 + dims]},oc{letters[3 : 3 + dims]}->no{letters[:dims]}"
        inputs, filters = np.split(windows, int(groups), 1), np.split(kernel, int(groups), 0)
        y = np.concatenate([np.einsum(equation, i, f) for i, f in zip(inputs, filters, strict=True)], 1)
        if bias is not None:
            y = y + _array(bias).reshape((1, -1) + (1,) * dims)
        return y[0] if single else y

    return apply


def _pool(dims: int, average: bool) -> Callable[..., Any]:
    def apply(
        self: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Any:  # fmt: skip
        if ceil_mode or _per_dim(dilation, dims) != (1,) * dims:
            raise ExpressionFailed("pooling with ceil_mode or dilation is not understood here")
        x, size = _float(self), _per_dim(kernel_size, dims)
        steps = size if stride is None else _per_dim(stride, dims)
        edges = [(0, 0)] * (x.ndim - dims) + [(pad, pad) for pad in _per_dim(padding, dims)]
        axes = tuple(range(x.ndim - dims, x.ndim))
        pick: Any = (..., *(slice(None, None, step) for step in steps), *(slice(None),) * dims)

        def windows(values: Array, fill: float) -> Array:
            return np.asarray(sliding_window_view(np.pad(values, edges, constant_values=fill), size, axis=axes)[pick])

        last = tuple(range(-dims, 0))
        if not average:
            return windows(x, -math.inf).max(last)
        total = windows(x, 0.0).sum(last)
        return total / (math.prod(size) if count_include_pad else windows(np.ones_like(x), 0.0).sum(last))

    return apply


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "mean":
        return np.mean(loss)
    if reduction == "sum":
        return np.sum(loss)
    if reduction == "none":
        return loss
    raise ExpressionFailed(f"reduction={reduction!r} is not known")


def _mse_loss(self: Any, target: Any, reduction: str = "mean") -> Any:
    return _reduced(np.square(_float(self) - target), reduction)


def _l1_loss(self: Any, target: Any, reduction: str = "mean") -> Any:
    return _reduced(np.abs(_float(self) - target), reduction)


def _huber_loss(self: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    off = np.abs(_float(self) - target)
    return _reduced(np.where(off < delta, 0.5 * off * off, delta * (off - 0.5 * delta)), reduction)


def _smooth_l1_loss(self: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    off = np.abs(_float(self) - target)
    return _reduced(np.where(off < beta, 0.5 * off * off / beta, off - 0.5 * beta), reduction)


def _bce(self: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    p, t = _float(self), _float(target)
    # torch bounds the logarithms from below by -100.
    loss = -(t * np.maximum(np.log(p), -100) + (1 - t) * np.maximum(np.log1p(-p), -100))
    return _reduced(loss if weight is None else loss * weight, reduction)


def _bce_with_logits(self: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    x, t = _float(self), _float(target)
    loss = np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))
    return _reduced(loss if weight is None else loss * weight, reduction)


def _nll_loss(self: Any, target: Any, reduction: str = "mean") -> Any:
    picked = np.take_along_axis(_float(self), _array(target)[:, None], 1)[:, 0]
    return _reduced(-picked, reduction)


def _cross_entropy(self: Any, target: Any, reduction: str = "mean") -> Any:
    if _array(target).dtype.kind == "f":
        return _reduced(-np.sum(_log_softmax(self, 1) * target, axis=1), reduction)
    return _nll_loss(_log_softmax(self, 1), target, reduction)


def _kl_div(self: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    t = _float(target)
    loss = np.exp(t) * (t - self) if log_target else np.where(t > 0, t * (np.log(t) - self), 0.0)
    return np.sum(loss) / loss.shape[0] if reduction == "batchmean" else _reduced(loss, reduction)


def _embedding(self: Any, weight: Any) -> Array:
    _room((_array(self).size * _array(weight).shape[-1],))
    return np.asarray(_array(weight)[_array(self)])


def _one_hot(self: Any, num_classes: int = -1) -> Array:
    x = _array(self)
    classes = int(num_classes) if num_classes > 0 else int(x.max()) + 1
    _room((*x.shape, classes))
    return np.asarray(x[..., None] == np.arange(classes)).astype(np.int64)


def _attention(
    self: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: Any = None
) -> Any:
    q, k = _float(self), _float(key)
    scores = _matmul(q, np.swapaxes(k, -1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) != 0, scores, -math.inf)
    if attn_mask is not None:
        mask = _array(attn_mask)
        scores = np.where(mask, scores, -math.inf) if mask.dtype == bool else scores + mask
    return _matmul(_softmax(scores, -1), value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    # elementwise
    **{name: _map(getattr(np, name)) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "cbrt",
    )},
    **{name: _map(getattr(np, "arc" + name[1:])) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{name: _keep(getattr(np, name)) for name in (
        "abs", "square", "sign", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "logical_not", "signbit",
    )},
    "absolute": _keep(np.abs), "neg": _keep(np.negative), "negative": _keep(np.negative), "fix": _keep(np.trunc),
    "sgn": _keep(np.sign), "bitwise_not": _keep(np.invert), "positive": _itself,
    "rsqrt": _map(lambda x: 1 / np.sqrt(x)), "reciprocal": _map(lambda x: 1 / x), "frac": _map(lambda x: x - np.trunc(x)),
    "erf": erf, "erfc": _map(lambda x: np.asarray(_erfc(x), np.float64)),
    "lgamma": _map(lambda x: np.asarray(_lgamma(x), np.float64)),
    "deg2rad": _map(np.deg2rad), "rad2deg": _map(np.rad2deg), "round": _round,
    "relu": _relu, "relu_": _relu, "relu6": _map(lambda x: np.clip(x, 0, 6)), "sigmoid": _sigmoid, "expit": _sigmoid,
    "gelu": _gelu, "silu": _silu, "swish": _silu, "softplus": _softplus, "elu": _elu, "celu": _celu, "selu": _selu,
    "leaky_relu": _leaky_relu, "prelu": _prelu, "hardtanh": _hardtanh, "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish, "hardshrink": _hardshrink, "softshrink": _softshrink, "threshold": _threshold,
    "logsigmoid": _logsigmoid, "softsign": _map(lambda x: x / (1 + np.abs(x))), "glu": _glu,
    "tanhshrink": _map(lambda x: x - np.tanh(x)), "mish": _map(lambda x: x * np.tanh(_softplus(x))),
    "logit": _map(lambda x: np.log(x / (1 - x))), "nan_to_num": _nan_to_num,
    "clamp": _clamp, "clip": _clamp, "clamp_min": lambda self, min: _clamp(self, min),
    "clamp_max": lambda self, max: _clamp(self, None, max),
    "where": _where_method, "masked_fill": _masked_fill, "lerp": _lerp,
    "add": _add, "sub": _sub, "subtract": _sub, "div": _div, "divide": _div, "true_divide": _div,
    "mul": _two(np.multiply), "multiply": _two(np.multiply), "pow": _two(_power),
    "float_power": _two(lambda a, b: np.power(_float(a), b)), "floor_divide": _two(np.floor_divide),
    "remainder": _two(np.mod), "fmod": _two(np.fmod), "addcmul": _addcmul, "addcdiv": _addcdiv,
    "minimum": _two(np.minimum), "maximum": _two(np.maximum), "fmin": _two(np.fmin), "fmax": _two(np.fmax),
    "atan2": _two(np.arctan2), "arctan2": _two(np.arctan2), "hypot": _two(np.hypot), "copysign": _two(np.copysign),
    "logaddexp": _two(np.logaddexp), "ldexp": _two(lambda a, b: _float(a) * np.exp2(_float(b))),
    "xlogy": _two(lambda a, b: np.where(np.equal(a, 0) & ~np.isnan(b), 0.0, a * np.log(b))),
    "heaviside": _two(np.heaviside),
    "eq": _two(np.equal), "ne": _two(np.not_equal), "lt": _two(np.less), "le": _two(np.less_equal),
    "gt": _two(np.greater), "ge": _two(np.greater_equal), "logical_and": _two(np.logical_and),
    "logical_or": _two(np.logical_or), "logical_xor": _two(np.logical_xor), "bitwise_and": _two(np.bitwise_and),
    "bitwise_or": _two(np.bitwise_or), "bitwise_xor": _two(np.bitwise_xor),
    "bitwise_left_shift": _two(np.left_shift), "bitwise_right_shift": _two(np.right_shift),
    # reductions
    "sum": _sum, "mean": _mean, "prod": _prod, "max": _extreme(np.max, np.argmax, np.maximum),
    "min": _extreme(np.min, np.argmin, np.minimum), "amax": _amax, "amin": _amin, "argmax": _argmax, "argmin": _argmin,
    "var": _var, "std": _std, "norm": _norm, "logsumexp": _logsumexp, "softmax": _softmax, "softmin": _softmin,
    "log_softmax": _log_softmax, "median": _median, "count_nonzero": _count_nonzero, "any": _any, "all": _all,
    # scans, order, counting
    "cumsum": _cumsum, "cumprod": _cumprod, "cummax": _running(np.maximum, np.greater_equal),
    "cummin": _running(np.minimum, np.less_equal), "sort": _sort, "argsort": _argsort, "topk": _topk,
    "bincount": _bincount, "histc": _histc, "diff": _diff, "searchsorted": _searchsorted,
    # shape
    "reshape": _reshape, "view": _reshape, "flatten": _flatten, "ravel": _flatten, "transpose": _transpose,
    "swapaxes": _transpose, "swapdims": _transpose, "t": _t, "permute": _permute, "squeeze": _squeeze,
    "unsqueeze": _unsqueeze, "expand": _expand, "broadcast_to": _expand, "expand_as": lambda self, other: _expand(self, other.shape),
    "view_as": lambda self, other: _reshape(self, other.shape), "repeat": _repeat, "tile": _repeat,
    "repeat_interleave": _repeat_interleave, "flip": _flip, "fliplr": lambda self: np.fliplr(_array(self)),
    "flipud": lambda self: np.flipud(_array(self)), "roll": _roll, "cat": _cat, "concat": _cat, "concatenate": _cat,
    "stack": _stack, "chunk": _chunk, "split": _split, "unbind": _unbind, "narrow": _narrow, "select":
    lambda self, dim, index: np.take(_array(self), int(index), int(dim)), "index_select": _index_select,
    "gather": _gather, "scatter": _scatter(False), "scatter_add": _scatter(True), "index_add": _index_add, "take": _take,
    "take_along_dim": lambda self, indices, dim: np.take_along_axis(_array(self), indices, int(dim)),
    "tril": _tril, "triu": _triu, "diag": _diag, "diagonal": lambda self: np.diagonal(_array(self)), "pad": _pad,
    "size": _size, "numel": lambda self: _array(self).size, "dim": lambda self: _array(self).ndim,
    "movedim": lambda self, source, destination: np.moveaxis(_array(self), source, destination),
    # making tensors
    "arange": _arange, "linspace": _linspace, "full": _full, "zeros": _zeros, "ones": _ones, "zeros_like": _like(0),
    "ones_like": _like(1), "full_like": _full_like, "eye": _eye, "tensor": _tensor, "as_tensor": _tensor,
    # casts and copies
    "float": _casts_to("float"), "double": _casts_to("double"), "half": _casts_to("half"), "int": _casts_to("int"),
    "long": _casts_to("long"), "bool": _casts_to("bool"), "bfloat16": _casts_to("bfloat16"), "to": _cast, "type": _cast,
    "contiguous": _itself, "clone": _itself, "detach": _itself, "item": _itself, "cpu": _itself, "cuda": _itself,
    # linear algebra
    "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "mv": _matmul, "dot": _dot, "inner": _dot, "vdot": _dot,
    "outer": _outer, "ger": _outer, "addmm": _addmm, "addmv": _addmm, "baddbmm": _addmm, "einsum": _einsum,
    "linear": _linear, "trace": _trace, "cdist": _cdist,
    "kron": _kron,
    # torch.nn.functional
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "batch_norm": _batch_norm,
    "normalize": _normalize, "cosine_similarity": _cosine_similarity, "conv1d": _conv(1), "conv2d": _conv(2),
    "conv3d": _conv(3), "avg_pool1d": _pool(1, True), "avg_pool2d": _pool(2, True), "max_pool1d": _pool(1, False),
    "max_pool2d": _pool(2, False), "mse_loss": _mse_loss, "l1_loss": _l1_loss, "huber_loss": _huber_loss,
    "smooth_l1_loss": _smooth_l1_loss, "binary_cross_entropy": _bce, "binary_cross_entropy_with_logits": _bce_with_logits,
    "nll_loss": _nll_loss, "cross_entropy": _cross_entropy, "kl_div": _kl_div, "embedding": _embedding,
    "one_hot": _one_hot, "scaled_dot_product_attention": _attention,
}  # fmt: skip
"""Every function and method there is, by torch's name; `self` is the tensor that a method is called on."""


def _number_of(value: Any) -> Any:
    if value in ("inf", "-inf", "nan"):
        return float(value)
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value


_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": _keep(np.abs),
    "float": lambda value: float(_number_of(value)),
    "int": lambda value: int(_number_of(value)),
    "len": lambda value: len(value),
    "round": _round,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "relu": _relu,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
}
"""Plain names that may be called without `torch.`."""
