"""A torch expression as the loop nest that computes it: the form in which the shipped checkpoint reads a reference best.

`torch.relu(x + b)` with `x[rows, cols]`, `b[cols]` becomes two loops and one assignment; reductions become accumulators in
the innermost loop that they depend on. Only the functions below are known, with torch's meaning for floating-point tensors
(PyTorch documentation, `torch` and `torch.nn.functional`). For anything else there is no loop nest, and the expression is
shown as it stands. The text is only ever read by the model: what a fill is compared with is the expression itself.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence

from attrs import define, field, frozen

MAX_CHARACTERS = 600


class _Unknown(Exception):
    """The expression has a part that has no loops here."""


@frozen
class _Piece:
    """C text and how tightly its outermost operator binds."""

    text: str
    binds: int = 100

    def inside(self, binds: int) -> str:
        return self.text if self.binds >= binds else f"({self.text})"


_TERNARY, _OR, _AND, _BITS, _COMPARE, _ADD, _MULTIPLY, _UNARY = 10, 20, 30, 35, 40, 50, 60, 70


@frozen
class _Tensor:
    """Extents as C expressions, and the C text of the element at some indices."""

    extents: tuple[str, ...]
    at: Callable[[tuple[str, ...]], _Piece]


@define
class _Scope:
    """The statements of one loop over `variable`; the outermost scope has no variable."""

    variable: str
    statements: list[str] = field(factory=list)


def as_loops(
    expression: str,
    inputs: Mapping[str, Sequence[str]],
    scalars: Sequence[str],
    output: str,
    extents: Sequence[str],
    element: str,
) -> str | None:
    """The body of a C function that stores `expression` into `output`, or None where a part of it is not known here.

    Args:
        inputs: extents of each buffer, as C expressions.
        scalars: names of the kernel's other parameters.
        extents: those of the output.
        element: `float`, `double`, or an integer type, for which only arithmetic, bits, sums and comparisons are known.
    """
    if element not in ("float", "double", "int", "unsigned int", "unsigned") or len(expression) > MAX_CHARACTERS:
        return None
    if not extents:
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        for order in (tuple(range(len(extents))), tuple(reversed(range(len(extents))))):
            writer = _Writer(inputs, scalars, element)
            text, repeated = writer.nest(tree, output, tuple(extents), order)
            # A reduction over rows that every element would repeat is shared when the loop over columns is outside.
            if not repeated or len(extents) == 1:
                return text
        writer = _Writer(inputs, scalars, element)
        return writer.nest(tree, output, tuple(extents), tuple(range(len(extents))))[0]
    except (_Unknown, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_OPERATORS: dict[type[ast.operator], tuple[str, int]] = {
    ast.Add: ("+", _ADD), ast.Sub: ("-", _ADD), ast.Mult: ("*", _MULTIPLY), ast.Div: ("/", _MULTIPLY),
    ast.BitAnd: ("&&", _AND), ast.BitOr: ("||", _OR),
}  # fmt: skip
_WHOLE_OPERATORS: dict[type[ast.operator], tuple[str, int]] = {
    ast.Add: ("+", _ADD), ast.Sub: ("-", _ADD), ast.Mult: ("*", _MULTIPLY), ast.BitAnd: ("&", _BITS),
    ast.BitOr: ("|", _BITS), ast.BitXor: ("^", _BITS), ast.LShift: ("<<", _BITS), ast.RShift: (">>", _BITS),
}  # fmt: skip
"""For integers `&` is no condition; torch divides them to floats, which is left out."""


class _Writer:
    def __init__(self, inputs: Mapping[str, Sequence[str]], scalars: Sequence[str], element: str) -> None:
        self.inputs, self.scalars, self.element = inputs, scalars, element
        self.f = "f" if element == "float" else ""
        self.whole = element not in ("float", "double")
        self.scopes: list[_Scope] = [_Scope("")]
        self.known: dict[tuple[str, tuple[str, ...]], str] = {}
        taken = {*inputs, *scalars}
        self.variables = (name for name in ("i", "j", "k", "l", "p", "q", "r", "s", "t") if name not in taken)
        self.accumulators = (f"acc{number}" for number in range(20) if f"acc{number}" not in taken)
        self.repeated = False

    def nest(self, tree: ast.expr, output: str, extents: tuple[str, ...], order: tuple[int, ...]) -> tuple[str, bool]:
        """The loops, and whether a reduction stands in the innermost one though it depends on fewer variables."""
        value = self.value(tree)
        extents = tuple(extent for extent in extents if extent != "1" or len(extents) == 1)
        own = value.extents
        while len(own) > len(extents) and own[0] == "1":
            own = own[1:]
        indices = [self._variable() for _ in extents]
        order = order if len(order) == len(extents) else tuple(range(len(extents)))
        loops = (
            [] if extents == ("1",) and value.extents in ((), ("1",)) else [(indices[at], extents[at]) for at in order]
        )
        if not loops:
            indices = ["0"]
        for variable, _ in loops:
            self.scopes.append(_Scope(variable))
        piece = self.element_of(value, tuple(indices), extents)
        flat = _flat(tuple(indices), extents)
        text = " ".join([*self.scopes[-1].statements, f"{output}[{flat}] = {piece.text};"])
        for at in reversed(range(len(loops))):
            variable, extent = loops[at]
            head = f"for (int {variable} = 0; {variable} < {extent}; {variable}++)"
            text = " ".join([*self.scopes[at].statements, f"{head} {{ {text} }}"])
        return f"{{ {text} }}", self.repeated

    def _variable(self) -> str:
        name = next(self.variables, None)
        if name is None:
            raise _Unknown
        return name

    def element_of(self, value: _Tensor, indices: tuple[str, ...], extents: tuple[str, ...]) -> _Piece:
        """The element of `value`, broadcast to `extents`, at `indices`."""
        if len(value.extents) > len(indices):
            raise _Unknown
        own = indices[len(indices) - len(value.extents) :]
        outer = extents[len(extents) - len(value.extents) :]
        chosen = []
        for index, extent, wanted in zip(own, value.extents, outer, strict=True):
            if _same(extent, "1") and not _same(wanted, "1"):
                chosen.append("0")
            elif _same(extent, wanted):
                chosen.append(index)
            else:
                raise _Unknown
        return value.at(tuple(chosen))

    # --- values

    def value(self, node: ast.expr) -> _Tensor:
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Constant(value=bool()):
                raise _Unknown
            case ast.Constant(value=int(number)) | ast.Constant(value=float(number)):
                return self.number(float(number))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if isinstance(operand, ast.Constant) and isinstance(operand.value, int | float):
                    return self.number(-float(operand.value))
                return self.pointwise([self.value(operand)], lambda a: _Piece("-" + a.inside(_UNARY + 1), _UNARY))
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return self.product(node, self.value(left), self.value(right))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self.power(self.value(left), right)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                sign = {ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}.get(
                    type(op)
                )
                if sign is None:
                    raise _Unknown
                return self.pointwise(
                    [self.value(left), self.value(right)],
                    lambda a, b: _Piece(f"{a.inside(_COMPARE + 1)} {sign} {b.inside(_COMPARE + 1)}", _COMPARE),
                )
            case ast.Subscript(value=base, slice=index):
                return self.subscript(self.value(base), index)
            case ast.Attribute(value=base, attr="T"):
                return self.transposed(self.value(base))
            case ast.Call():
                return self.call(node)
        raise _Unknown

    def name(self, name: str) -> _Tensor:
        if name in self.inputs:
            extents = tuple(self.inputs[name])
            return _Tensor(extents, lambda indices: _Piece(f"{name}[{_flat(indices, extents)}]"))
        if name in self.scalars:
            return _Tensor((), lambda indices: _Piece(name))
        raise _Unknown

    def number(self, number: float) -> _Tensor:
        text = repr(abs(number))
        if text in ("inf", "nan") or abs(number) >= 1e16:
            raise _Unknown
        if self.whole:
            if not number.is_integer():
                raise _Unknown
            text = str(int(abs(number)))
        piece = _Piece(text + self.f)
        return _Tensor((), lambda indices: piece if number >= 0 else _Piece("-" + piece.text, _UNARY))

    def pointwise(self, operands: Sequence[_Tensor], join: Callable[..., _Piece]) -> _Tensor:
        extents: tuple[str, ...] = ()
        for operand in operands:
            extents = _broadcast(extents, operand.extents)
        return _Tensor(
            extents, lambda indices: join(*(self.element_of(operand, indices, extents) for operand in operands))
        )

    def binary(self, op: ast.operator, a: _Tensor, b: _Tensor) -> _Tensor:
        table = _WHOLE_OPERATORS if self.whole else _OPERATORS
        sign, binds = table.get(type(op), ("", 0))
        if not sign:
            raise _Unknown
        # Bit operators have ranks of their own in C: both sides get parentheses.
        left = binds + (binds == _BITS)
        return self.pointwise([a, b], lambda x, y: _Piece(f"{x.inside(left)} {sign} {y.inside(binds + 1)}", binds))

    def power(self, base: _Tensor, exponent: ast.expr) -> _Tensor:
        if isinstance(exponent, ast.Constant) and exponent.value in (2, 3):
            times = 2 if exponent.value == 2 else 3
            return self.pointwise([base], lambda a: _Piece(" * ".join([a.inside(_MULTIPLY + 1)] * times), _MULTIPLY))
        if isinstance(exponent, ast.Constant) and exponent.value == 0.5:
            return self.function("sqrt", [base])
        return self.pointwise([base, self.value(exponent)], lambda a, b: self.c_call("pow", a, b))

    def subscript(self, base: _Tensor, index: ast.expr) -> _Tensor:
        """`x[:, None]`, `x[None]`, and a gather by a buffer of indices along the first dim."""
        if isinstance(index, ast.Name) and index.id in self.inputs and base.extents:
            chosen = self.name(index.id)
            count = len(chosen.extents)
            return _Tensor(
                chosen.extents + base.extents[1:],
                lambda indices: base.at((chosen.at(indices[:count]).text, *indices[count:])),
            )
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        kept: list[bool] = []
        for part in parts:
            if isinstance(part, ast.Constant) and part.value is None:
                kept.append(False)
            elif isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
                kept.append(True)
            else:
                raise _Unknown
        kept += [True] * (len(base.extents) - sum(kept))
        if sum(kept) != len(base.extents):
            raise _Unknown
        left = iter(base.extents)
        extents = tuple(next(left) if keep else "1" for keep in kept)
        return _Tensor(
            extents, lambda indices: base.at(tuple(i for i, keep in zip(indices, kept, strict=True) if keep))
        )

    def transposed(self, base: _Tensor, a: int = 0, b: int = 1) -> _Tensor:
        order = list(range(len(base.extents)))
        if len(order) < 2:
            return base
        order[a], order[b] = order[b], order[a]
        extents = tuple(base.extents[at] for at in order)

        def at(indices: tuple[str, ...]) -> _Piece:
            own = list(indices)
            own[a], own[b] = own[b], own[a]
            return base.at(tuple(own))

        return _Tensor(extents, at)

    # --- functions

    def c_call(self, name: str, *arguments: _Piece) -> _Piece:
        if self.whole:
            found = {"fmax": "max", "fmin": "min", "fabs": "abs"}.get(name)
            if found is None:
                raise _Unknown
            name = found
        return _Piece(f"{name}{self.f}({', '.join(argument.text for argument in arguments)})")

    def call(self, node: ast.Call) -> _Tensor:
        if not isinstance(node.func, ast.Attribute):
            raise _Unknown
        name = node.func.attr
        arguments = list(node.args)
        if ast.unparse(node.func.value) not in ("torch", "F", "torch.nn.functional", "nn.functional", "torch.special"):
            arguments = [node.func.value, *arguments]
        named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if name in ("t", "transpose"):
            numbers = [_integer(argument) for argument in arguments[1:]] or [0, 1]
            turned = self.value(arguments[0])
            first, second = (number % max(len(turned.extents), 1) for number in numbers[:2])
            return self.transposed(turned, first, second)
        if name in ("matmul", "mm", "bmm", "mv", "dot"):
            return self.product(node, self.value(arguments[0]), self.value(arguments[1]))
        if name in ("outer", "ger"):
            a, b = self.value(arguments[0]), self.value(arguments[1])
            return _Tensor(
                (*a.extents, *b.extents),
                lambda indices: _Piece(
                    f"{a.at(indices[:1]).inside(_MULTIPLY)} * {b.at(indices[1:]).inside(_MULTIPLY + 1)}", _MULTIPLY
                ),
            )
        if name == "flip":
            base = self.value(arguments[0])
            dims = arguments[1].elts if isinstance(arguments[1], ast.Tuple | ast.List) else [arguments[1]]
            mirrored = {_integer(dim) % len(base.extents) for dim in dims}
            return _Tensor(
                base.extents,
                lambda indices: base.at(
                    tuple(
                        f"{_factor(base.extents[at])} - 1 - {index}" if at in mirrored else index
                        for at, index in enumerate(indices)
                    )
                ),
            )
        if name == "unsqueeze":
            base = self.value(arguments[0])
            place = _integer(arguments[1]) % (len(base.extents) + 1)
            return _Tensor(
                (*base.extents[:place], "1", *base.extents[place:]),
                lambda indices: base.at((*indices[:place], *indices[place + 1 :])),
            )
        if name == "pow" and len(arguments) == 2:
            return self.power(self.value(arguments[0]), arguments[1])
        if name in ("contiguous", "float", "double", "clone"):
            return self.value(arguments[0])
        if name in ("sum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "norm") and (
            len(arguments) == 1 or _is_dim(arguments[1])
        ):
            return self.reduction(node, name, arguments, named)
        if name in ("softmax", "log_softmax"):
            return self.softmax(node, name, arguments, named)
        values = [self.value(argument) for argument in arguments]
        return self.function(name, values, {key: self.value(value) for key, value in named.items()})

    def function(self, name: str, values: list[_Tensor], named: Mapping[str, _Tensor] | None = None) -> _Tensor:
        named = dict(named or {})
        one, zero, f = f"1.0{self.f}", f"0.0{self.f}", self.f
        if self.whole and name in ("relu", "sigmoid", "silu", "rsqrt", "reciprocal", "lerp", "div"):
            raise _Unknown
        if name == "clamp" or name == "clip":
            low = values[1] if len(values) > 1 else named.get("min")
            high = values[2] if len(values) > 2 else named.get("max")
            result = values[0]
            if low is not None:
                result = self.pointwise([result, low], lambda a, b: self.c_call("fmax", a, b))
            if high is not None:
                result = self.pointwise([result, high], lambda a, b: self.c_call("fmin", a, b))
            return result
        if named:
            raise _Unknown
        same = {
            "exp": "exp", "log": "log", "sqrt": "sqrt", "tanh": "tanh", "sin": "sin", "cos": "cos", "abs": "fabs",
            "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "log1p": "log1p", "expm1": "expm1",
            "erf": "erf", "exp2": "exp2", "log2": "log2", "log10": "log10", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
            "tan": "tan", "asin": "asin", "acos": "acos",
        }  # fmt: skip
        if name in same and len(values) == 1:
            return self.pointwise(values, lambda a: self.c_call(same[name], a))
        pairs = {
            "maximum": "fmax", "minimum": "fmin", "max": "fmax", "min": "fmin", "pow": "pow", "atan2": "atan2",
            "hypot": "hypot", "fmod": "fmod", "copysign": "copysign",
        }  # fmt: skip
        if name in pairs and len(values) == 2:
            return self.pointwise(values, lambda a, b: self.c_call(pairs[name], a, b))
        operators = {"add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "div": ast.Div()}
        if name in operators and len(values) == 2:
            return self.binary(operators[name], values[0], values[1])
        match name, len(values):
            case "relu", 1:
                return self.pointwise(values, lambda a: _Piece(f"fmax{f}({a.text}, {zero})"))
            case "sigmoid", 1:
                return self.pointwise(
                    values, lambda a: _Piece(f"{one} / ({one} + exp{f}(-{a.inside(_UNARY + 1)}))", _MULTIPLY)
                )
            case "silu", 1:
                return self.pointwise(
                    values,
                    lambda a: _Piece(f"{a.inside(_MULTIPLY)} / ({one} + exp{f}(-{a.inside(_UNARY + 1)}))", _MULTIPLY),
                )
            case "rsqrt", 1:
                return self.pointwise(values, lambda a: _Piece(f"{one} / sqrt{f}({a.text})", _MULTIPLY))
            case "reciprocal", 1:
                return self.pointwise(values, lambda a: _Piece(f"{one} / {a.inside(_MULTIPLY + 1)}", _MULTIPLY))
            case "square", 1:
                return self.pointwise(
                    values, lambda a: _Piece(f"{a.inside(_MULTIPLY)} * {a.inside(_MULTIPLY + 1)}", _MULTIPLY)
                )
            case "neg", 1:
                return self.pointwise(values, lambda a: _Piece("-" + a.inside(_UNARY + 1), _UNARY))
            case "where", 3:
                return self.pointwise(
                    values,
                    lambda c, a, b: _Piece(
                        f"{c.inside(_TERNARY + 1)} ? {a.inside(_TERNARY + 1)} : {b.inside(_TERNARY + 1)}", _TERNARY
                    ),
                )
            case "lerp", 3:
                return self.pointwise(
                    values,
                    lambda a, b, w: _Piece(
                        f"{a.inside(_ADD)} + {w.inside(_MULTIPLY)} * ({b.text} - {a.inside(_ADD + 1)})", _ADD
                    ),
                )
        raise _Unknown

    # --- reductions

    def reduction(self, node: ast.expr, name: str, arguments: list[ast.expr], named: Mapping[str, ast.expr]) -> _Tensor:
        base = self.value(arguments[0])
        dims = arguments[1] if len(arguments) > 1 else named.get("dim")
        keep = named.get("keepdim", arguments[2] if len(arguments) > 2 else None)
        kept = isinstance(keep, ast.Constant) and keep.value is True
        count = len(base.extents)
        if name in ("max", "min"):
            if dims is not None:
                raise _Unknown  # torch gives a pair there
            name = "a" + name
        if set(named) - {"dim", "keepdim"}:
            raise _Unknown
        listed = dims.elts if isinstance(dims, ast.Tuple | ast.List) else ([] if dims is None else [dims])
        over = sorted({_integer(dim) % count for dim in listed}) if dims is not None else list(range(count))
        if not over:
            raise _Unknown
        extents = tuple(
            "1" if at in over else extent for at, extent in enumerate(base.extents) if kept or at not in over
        )

        def at(indices: tuple[str, ...]) -> _Piece:
            outer = list(indices) if kept else _spread(indices, over, count)
            if self.whole and name not in ("sum", "amax", "amin", "prod"):
                raise _Unknown
            if name == "logsumexp":
                top = self.fold(node, base, "amax", over, outer)
                shifted = self.pointwise(
                    [base], lambda a: _Piece(f"exp{self.f}({a.inside(_ADD)} - {top.inside(_ADD + 1)})")
                )
                total = self.fold(node, shifted, "sum", over, outer)
                return _Piece(f"{top.inside(_ADD)} + log{self.f}({total.text})", _ADD)
            if name == "norm":
                squared = self.function("square", [base])
                return _Piece(f"sqrt{self.f}({self.fold(node, squared, 'sum', over, outer).text})")
            if name == "mean":
                total = self.fold(node, base, "sum", over, outer)
                size = " * ".join(_factor(base.extents[dim]) for dim in over)
                return _Piece(f"{total.inside(_MULTIPLY)} / {size if len(over) == 1 else f'({size})'}", _MULTIPLY)
            return self.fold(node, base, name, over, outer)

        return _Tensor(extents, at)

    def softmax(self, node: ast.expr, name: str, arguments: list[ast.expr], named: Mapping[str, ast.expr]) -> _Tensor:
        base = self.value(arguments[0])
        dim = arguments[1] if len(arguments) > 1 else named.get("dim")
        if dim is None:
            raise _Unknown
        over = [_integer(dim) % max(len(base.extents), 1)]

        def at(indices: tuple[str, ...]) -> _Piece:
            outer = list(indices)
            top = self.fold(node, base, "amax", over, outer)
            shifted = self.pointwise([base], lambda a: _Piece(f"{a.inside(_ADD)} - {top.inside(_ADD + 1)}", _ADD))
            powers = self.function("exp", [shifted])
            total = self.fold(node, powers, "sum", over, outer)
            if name == "softmax":
                return _Piece(f"{powers.at(indices).text} / {total.text}", _MULTIPLY)
            return _Piece(f"{shifted.at(indices).text} - log{self.f}({total.text})", _ADD)

        return _Tensor(base.extents, at)

    def product(self, node: ast.expr, a: _Tensor, b: _Tensor) -> _Tensor:
        if not a.extents or not b.extents or len(a.extents) > 3 or len(b.extents) > 3:
            raise _Unknown
        inner = a.extents[-1]
        if not _same(inner, b.extents[-2] if len(b.extents) > 1 else b.extents[0]):
            raise _Unknown
        batched = len(b.extents) == 3
        if batched and len(a.extents) != 3:
            raise _Unknown
        left = a.extents[:-1]
        right = b.extents[-1:] if len(b.extents) > 1 else ()
        count = len(left)

        def terms(indices: tuple[str, ...]) -> _Piece:
            own, k = indices[:-1], indices[-1]
            x = a.at((*own[:count], k))
            y = b.at((*(own[:1] if batched else ()), k, *own[count:]))
            return _Piece(f"{x.inside(_MULTIPLY)} * {y.inside(_MULTIPLY + 1)}", _MULTIPLY)

        whole = _Tensor((*left, *right, inner), terms)
        last = len(whole.extents) - 1
        return _Tensor(whole.extents[:-1], lambda indices: self.fold(node, whole, "sum", [last], [*indices, "0"]))

    def fold(self, node: ast.expr, base: _Tensor, kind: str, over: list[int], outer: list[str]) -> _Piece:
        """The accumulator of a reduction, made in the innermost loop on whose variable it depends."""
        fixed = tuple(index for at, index in enumerate(outer) if at not in over)
        key = (f"{ast.dump(node)} {kind} {over} {base.extents}", fixed)
        if key in self.known:
            return _Piece(self.known[key])
        words = set(re.findall(r"\w+", " ".join(fixed)))
        depth = max((at for at, scope in enumerate(self.scopes) if scope.variable in words), default=0)
        needed = {scope.variable for scope in self.scopes[1:] if scope.variable in words}
        if needed != {scope.variable for scope in self.scopes[1 : depth + 1]}:
            self.repeated = True
        name = next(self.accumulators, None)
        if name is None:
            raise _Unknown
        below = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        indices = list(outer)
        loops = []
        for dim in over:
            variable = self._variable()
            loops.append((variable, base.extents[dim]))
            indices[dim] = variable
            self.scopes.append(_Scope(variable))
        element = base.at(tuple(indices))
        if self.whole and kind != "sum":
            raise _Unknown
        limit = "FLT_MAX" if self.element == "float" else "DBL_MAX"
        start, change = {
            "sum": ("0" if self.whole else f"0.0{self.f}", f"{name} += {element.text};"),
            "prod": (f"1.0{self.f}", f"{name} *= {element.text};"),
            "amax": (f"-{limit}", f"{name} = fmax{self.f}({name}, {element.text});"),
            "amin": (limit, f"{name} = fmin{self.f}({name}, {element.text});"),
        }[kind]
        text = change
        for variable, extent in reversed(loops):
            inner = self.scopes.pop()
            head = f"for (int {variable} = 0; {variable} < {extent}; {variable}++)"
            text = f"{head} {{ {' '.join([*inner.statements, text])} }}"
        self.scopes[-1].statements.append(f"{self.element} {name} = {start}; {text}")
        self.scopes += below
        self.known[key] = name
        return _Piece(name)


def _same(a: str, b: str) -> bool:
    return a.replace(" ", "") == b.replace(" ", "")


def _factor(extent: str) -> str:
    return extent if re.fullmatch(r"\w+", extent.strip()) else f"({extent})"


def _flat(indices: tuple[str, ...], extents: tuple[str, ...]) -> str:
    """Row-major place of an element."""
    if not indices:
        return "0"
    text = indices[0]
    for at, (index, extent) in enumerate(zip(indices[1:], extents[1:], strict=True)):
        first = text if re.fullmatch(r"\w+(?:\[.*\])?", text) else f"({text})"
        product = "" if text == "0" else f"{first} * {_factor(extent)}"
        text = index if not product else (f"{product} + {index}" if index != "0" or at < 0 else product)
    return text


def _broadcast(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    gap = len(longer) - len(shorter)
    joined = list(longer[:gap])
    for x, y in zip(longer[gap:], shorter, strict=True):
        if not _same(x, y) and not _same(x, "1") and not _same(y, "1"):
            raise _Unknown
        joined.append(y if _same(x, "1") else x)
    return tuple(joined)


def _spread(indices: tuple[str, ...], over: list[int], count: int) -> list[str]:
    left = iter(indices)
    return ["0" if at in over else next(left) for at in range(count)]


def _integer(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if not isinstance(value, int):
        raise _Unknown
    return value


def _is_dim(node: ast.expr) -> bool:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return False
    return isinstance(value, int | tuple | list)
