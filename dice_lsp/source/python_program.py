"""What a Python program says of the CUDA functions that it calls: with which tensors, and what their results should be.

The format is the one of KernelBench and of inline extensions: `Model`, whose `forward` says in PyTorch what is wanted;
`ModelNew`, whose `forward` calls functions of an extension; `get_inputs` and `get_init_inputs`, which make the arguments
of `forward` and of the constructors. All is read as text: nothing of a program is ever executed, and whatever is not
plain enough to be certain is left out, since a wrong reference would blame a kernel that is right.
"""

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache

from attrs import evolve, frozen

MAX_CHARACTERS = 1 << 20
MAX_NODES = 400
"""Largest reference, in parts of its expression."""
REFERENCE_CLASS, NEW_CLASS = "Model", "ModelNew"

Number = int | float


@frozen
class Tensor:
    """A tensor that the program makes: its sizes, outermost first, and its type as torch spells it, without `torch.`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    init: str = "normal"
    """What its values are, as a `//dice:` line says it; empty where that is not known."""


@frozen
class Caller:
    """How a program calls one function of an extension."""

    arguments: tuple[Tensor | Number | None, ...]
    """What it passes, None where the text does not say."""
    names: tuple[str | None, ...] = ()
    """For each argument the name of the parameter of `forward` that it is."""
    reference: str | None = None
    """A PyTorch expression over `names` for what the call returns, when `Model.forward` says it."""


def callers(text: str, functions: Mapping[str, str]) -> Mapping[str, Caller]:
    """How a Python text calls functions of an extension. Never raises; a text that does not parse has none.

    Args:
        text: the Python file.
        functions: name that Python knows -> the C++ function.

    Returns:
        By C++ function. A function that is called in different ways keeps only what all calls agree in.
    """
    program = _program(text)
    if program is None:
        return {}
    found: dict[str, Caller] = {}
    for name, caller in program.calls(functions):
        function = functions[name]
        found[function] = _common(found[function], caller) if function in found else caller
    return found


def _common(first: Caller, second: Caller) -> Caller:
    if first == second:
        return first
    if len(first.arguments) != len(second.arguments):
        return Caller(())
    arguments = tuple(a if a == b else None for a, b in zip(first.arguments, second.arguments, strict=True))
    return Caller(arguments)


def renamed(reference: str, names: Mapping[str, str]) -> str | None:
    """A reference with its names replaced; None when one has no replacement."""
    tree = ast.parse(reference, mode="eval")
    bases = {id(node) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in ("torch", "math")}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in bases}
    if not used <= names.keys():
        return None
    return ast.unparse(_Substitution({name: ast.parse(names[name], mode="eval").body for name in used}).visit(tree))


def constants(text: str) -> Mapping[str, str]:
    """Names that stand for one number or one word in the whole text -> the number or word, as `str` writes it."""
    program = _program(text)
    if program is None:
        return {}
    numbers = {name: str(value) for name, value in program.constants.items() if not isinstance(value, tuple)}
    return {**program.words, **numbers}


@lru_cache(maxsize=8)
def _program(text: str) -> "_Program | None":
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        return _Program(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Unclear(Exception):
    """The text does not say it plainly."""


# How torch's modules without weights are written as functions: module -> function and the constructor's parameters.
MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ReLU": ("torch.relu", ()),
    "ReLU6": ("torch.nn.functional.relu6", ()),
    "LeakyReLU": ("torch.nn.functional.leaky_relu", ("negative_slope",)),
    "ELU": ("torch.nn.functional.elu", ("alpha",)),
    "CELU": ("torch.nn.functional.celu", ("alpha",)),
    "SELU": ("torch.nn.functional.selu", ()),
    "GELU": ("torch.nn.functional.gelu", ("approximate",)),
    "GLU": ("torch.nn.functional.glu", ("dim",)),
    "SiLU": ("torch.nn.functional.silu", ()),
    "Mish": ("torch.nn.functional.mish", ()),
    "Sigmoid": ("torch.sigmoid", ()),
    "Tanh": ("torch.tanh", ()),
    "LogSigmoid": ("torch.nn.functional.logsigmoid", ()),
    "Softplus": ("torch.nn.functional.softplus", ("beta", "threshold")),
    "Softsign": ("torch.nn.functional.softsign", ()),
    "Tanhshrink": ("torch.nn.functional.tanhshrink", ()),
    "Hardtanh": ("torch.nn.functional.hardtanh", ("min_val", "max_val")),
    "Hardsigmoid": ("torch.nn.functional.hardsigmoid", ()),
    "Hardswish": ("torch.nn.functional.hardswish", ()),
    "Softmax": ("torch.softmax", ("dim",)),
    "LogSoftmax": ("torch.log_softmax", ("dim",)),
    "Softmin": ("torch.nn.functional.softmin", ("dim",)),
    "MaxPool1d": ("torch.nn.functional.max_pool1d", ("kernel_size", "stride", "padding")),
    "MaxPool2d": ("torch.nn.functional.max_pool2d", ("kernel_size", "stride", "padding")),
    "AvgPool1d": ("torch.nn.functional.avg_pool1d", ("kernel_size", "stride", "padding")),
    "AvgPool2d": ("torch.nn.functional.avg_pool2d", ("kernel_size", "stride", "padding")),
    "CosineSimilarity": ("torch.nn.functional.cosine_similarity", ("dim", "eps")),
    "MSELoss": ("torch.nn.functional.mse_loss", ()),
    "L1Loss": ("torch.nn.functional.l1_loss", ()),
}
_NEEDED = {"Softmax": 1, "LogSoftmax": 1, "Softmin": 1, "MaxPool1d": 1, "MaxPool2d": 1, "AvgPool1d": 1, "AvgPool2d": 1}
"""Modules whose first arguments torch chooses by other rules, or asks for, when they are left out."""
_IMPORTS = {"torch", "torch.nn", "torch.nn.functional", "torch.linalg", "torch.special", "math"}
_SAME_VALUES = {"contiguous", "cuda", "cpu", "detach", "clone", "requires_grad_"}
"""Methods that change neither values nor sizes nor, of a contiguous tensor, its order."""
_RANDOM_OR_STATEFUL = {
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "rrelu", "bernoulli", "rand",
    "randn", "randint", "rand_like", "randn_like", "randperm", "normal", "multinomial", "batch_norm", "instance_norm",
    "manual_seed", "empty", "empty_like", "compile", "load", "save", "no_grad", "autocast",
}  # fmt: skip
_MAKERS = {"rand", "randn", "zeros", "ones", "empty", "full", "randint"}
_CASTS = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
}
_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.modules = _imports(tree)
        self.words: dict[str, str] = {}
        self.constants = self._constants()
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    # Names and numbers

    def _constants(self) -> dict[str, Number | tuple[Number, ...]]:
        stored: dict[str, int] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Global):
                stored.update(dict.fromkeys(node.names, 2))
        for statement in self.tree.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    inside = not isinstance(statement, (ast.Assign, ast.AnnAssign))
                    stored[node.id] = stored.get(node.id, 0) + (2 if inside and _at_top(statement) else not inside)
        found: dict[str, Number | tuple[Number, ...]] = {}
        self.constants = found
        for statement in self.tree.body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            pairs: list[tuple[ast.expr, ast.expr]] = [(statement.targets[0], statement.value)]
            match pairs[0]:
                case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
                    pairs = list(zip(targets, values, strict=True))
            for target, value in pairs:
                if isinstance(target, ast.Name) and stored.get(target.id) == 1:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        self.words[target.id] = value.value
                    with contextlib.suppress(_Unclear, ArithmeticError):
                        found[target.id] = self._number(value, {}, many=True)
        return found

    def _number(
        self, node: ast.expr, names: Mapping[str, "Number | tuple[Number, ...]"], *, many: bool = False
    ) -> "Number | tuple[Number, ...]":
        """A number, with `many` also a tuple of numbers. Raises `_Unclear`."""
        match node:
            case ast.Constant(value=bool()):
                raise _Unclear
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name):
                value_ = names.get(name, self.constants.get(name))
                if value_ is None or (isinstance(value_, tuple) and not many):
                    raise _Unclear
                return value_
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._number(operand, names)
                assert not isinstance(inner, tuple)
                return -inner
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._number(left, names), self._number(right, names)
                assert not isinstance(a, tuple) and not isinstance(b, tuple)
                if (
                    isinstance(op, ast.Pow)
                    and isinstance(a, int)
                    and isinstance(b, int)
                    and abs(a) < 64
                    and 0 <= b < 40
                ):
                    return int(a**b)
                if isinstance(op, ast.LShift) and isinstance(a, int) and isinstance(b, int) and 0 <= b < 40:
                    return a << b
                function = _OPERATORS.get(type(op))
                if function is None or (isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) and not b):
                    raise _Unclear
                return function(a, b)
            case ast.Tuple(elts=items) | ast.List(elts=items) if many:
                values = [self._number(item, names) for item in items]
                return tuple(value for value in values if not isinstance(value, tuple))
        raise _Unclear

    def _dotted(self, node: ast.expr) -> str | None:
        """`torch.nn.functional.relu` for `F.relu`, by the imports; None for what no import of torch or math brings."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.modules:
            return None
        return ".".join([self.modules[node.id], *reversed(parts)])

    # Tensors

    def _made(
        self, node: ast.expr, names: Mapping[str, "Tensor | Number | tuple[Number, ...] | None"]
    ) -> Tensor | Number | None:
        """What an argument is: a tensor that is made or was named, a number, or None."""
        match node:
            case ast.Name(id=name) if name in names:
                known = names[name]
                return None if isinstance(known, tuple) else known
            case ast.Call(func=ast.Attribute(value=base, attr=method)) if self._dotted(node.func) is None:
                tensor = self._made(base, names)
                if not isinstance(tensor, Tensor):
                    return None
                if method in _SAME_VALUES:
                    return tensor
                if method in _CASTS:
                    return evolve(tensor, dtype=_CASTS[method])
                if method == "to":
                    dtypes = [
                        d
                        for argument in (*node.args, *(k.value for k in node.keywords))
                        if (d := self._dtype(argument))
                    ]
                    return evolve(tensor, dtype=dtypes[0] if dtypes else tensor.dtype)
                return None
            case ast.BinOp(left=left, op=op, right=right):
                values = (self._made(left, names), self._made(right, names))
                if any(isinstance(value, Tensor) for value in values):
                    return _moved(op, *values)
            case ast.Call():
                return self._created(node, names)
        try:
            numbers = {k: v for k, v in names.items() if isinstance(v, (int, float))}
            value = self._number(node, numbers)
        except (_Unclear, ArithmeticError):
            return None
        return None if isinstance(value, tuple) else value

    def _created(
        self, node: ast.Call, names: Mapping[str, "Tensor | Number | tuple[Number, ...] | None"]
    ) -> Tensor | None:
        dotted = self._dotted(node.func) or ""
        module, _, maker = dotted.rpartition(".")
        if module != "torch" or maker not in _MAKERS:
            return None
        sizes: Sequence[ast.expr] = node.args
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        dtype = "int64" if maker == "randint" else "float32"
        if maker == "randint":
            sizes = [keywords["size"]] if "size" in keywords else node.args[-1:]
        elif maker == "full":
            sizes = node.args[:1]
        elif "size" in keywords:
            sizes = [keywords["size"]]
        numbers = {k: v for k, v in names.items() if isinstance(v, (int, float, tuple))}
        shape: list[int] = []
        try:
            for size in sizes:
                value = self._number(size.value if isinstance(size, ast.Starred) else size, numbers, many=True)
                shape += [int(part) for part in (value if isinstance(value, tuple) else (value,))]
        except (_Unclear, ArithmeticError):
            return None
        if "dtype" in keywords:
            told = self._dtype(keywords["dtype"])
            if told is None:
                return None
            dtype = told
        if not shape or min(shape) <= 0:
            return None
        return Tensor(tuple(shape), dtype, self._init(maker, node, numbers))

    def _init(self, maker: str, node: ast.Call, names: "Mapping[str, Number | tuple[Number, ...]]") -> str:
        """What the values of a tensor are that `torch.MAKER(...)` makes."""
        plain = {"randn": "normal", "rand": "uniform(0,1)", "zeros": "zeros", "ones": "ones"}.get(maker)
        if plain is not None or maker == "empty":
            return plain or ""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        given = [self._item(argument, names) for argument in node.args]
        if maker == "full":
            value = given[1] if len(given) > 1 else self._item(keywords.get("fill_value", ast.Constant(None)), names)
            return f"uniform({value},{value})" if isinstance(value, (int, float)) else ""
        ends = [value for value in given if isinstance(value, int)][:2]
        for name in ("low", "high"):
            if name in keywords:
                value = self._item(keywords[name], names)
                ends += [value] if isinstance(value, int) else []
        return f"int({','.join(map(str, ends if len(ends) == 2 else [0, *ends]))})" if 0 < len(ends) <= 2 else ""

    def _dtype(self, node: ast.expr) -> str | None:
        dotted = self._dotted(node) or ""
        word = dotted.removeprefix("torch.")
        if dotted == word or not word.isidentifier():
            return None
        return (
            _CASTS.get(word, word)
            if word in _CASTS or word.rstrip("0123456789") in ("float", "int", "uint", "bfloat")
            else None
        )

    def _returned(self, name: str) -> "tuple[Tensor | Number | tuple[Number, ...] | None, ...] | None":
        """The items of the list that a function without parameters returns."""
        function = self.functions.get(name)
        if function is None or function.args.args:
            return None
        values: dict[str, Tensor | Number | tuple[Number, ...] | None] = {}
        for statement in function.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    values[target] = self._item(value, values)
                case ast.Return(value=ast.List(elts=items) | ast.Tuple(elts=items)):
                    return tuple(self._item(item, values) for item in items)
                case ast.Expr(value=ast.Constant()):
                    continue
                case _:
                    return None
        return None

    def _item(
        self, node: ast.expr, values: Mapping[str, "Tensor | Number | tuple[Number, ...] | None"]
    ) -> "Tensor | Number | tuple[Number, ...] | None":
        """A tensor, a number, or a tuple of numbers."""
        made = self._made(node, values)
        if made is not None:
            return made
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float, tuple))}
        try:
            return self._number(node, numbers, many=True)
        except (_Unclear, ArithmeticError):
            return None

    def weights(self, node: ast.ClassDef) -> dict[str, tuple[Tensor | None, str]]:
        """Attributes that are `nn.Parameter(...)` -> the tensor, where it is known, and how it is made."""
        init = self._init_values(node)
        found: dict[str, tuple[Tensor | None, str]] = {}
        for name, value in _attributes(node).items():
            if isinstance(value, ast.Call) and self._dotted(value.func) == "torch.nn.Parameter" and value.args:
                made = self._made(value.args[0], init)
                found[name] = made if isinstance(made, Tensor) else None, ast.unparse(value)
        return found

    @cached_property
    def shared(self) -> Mapping[str, Tensor | None]:
        """Weights that `Model` and `ModelNew` make alike, and that a harness therefore gives the same values."""
        classes = [self.classes.get(name) for name in (REFERENCE_CLASS, NEW_CLASS)]
        first, second = ({} if node is None else self.weights(node) for node in classes)
        return {name: made[0] for name, made in first.items() if second.get(name) == made}

    # Calls

    def calls(self, functions: Mapping[str, str]) -> list[tuple[str, Caller]]:
        """Every call of one of the functions, by the name that Python knows."""
        found: list[tuple[str, Caller]] = []
        for name, node in self.classes.items():
            forward = _method(node, "forward")
            if forward is not None and self._is_module(node):
                found += self._calls_of_forward(name, node, forward, functions)
        for body in (self.tree.body, *(function.body for function in self.functions.values())):
            found += self._plain_calls(body, functions)
        return found

    def _is_module(self, node: ast.ClassDef) -> bool:
        return any(self._dotted(base) == "torch.nn.Module" for base in node.bases)

    def _plain_calls(self, body: Sequence[ast.stmt], functions: Mapping[str, str]) -> list[tuple[str, Caller]]:
        values: dict[str, Tensor | Number | None] = {}
        found: list[tuple[str, Caller]] = []
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                continue
            for call in _called(statement, functions):
                found.append((_called_name(call), Caller(tuple(self._made(item, values) for item in call.args))))
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    values[target] = self._made(value, values)
                case _:
                    for node in ast.walk(statement):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            values[node.id] = None
        return found

    def _calls_of_forward(
        self, name: str, node: ast.ClassDef, forward: ast.FunctionDef, functions: Mapping[str, str]
    ) -> list[tuple[str, Caller]]:
        parameters = _parameters(forward)
        given = self._returned("get_inputs") if name in (REFERENCE_CLASS, NEW_CLASS) else None
        if parameters is None:
            return []
        if given is None or len(given) > len(parameters):
            given = ()
        inputs: dict[str, Tensor | Number | None] = dict.fromkeys(parameters)
        items = [None if isinstance(item, tuple) else item for item in given]
        inputs |= dict(zip(parameters, items, strict=False))
        weights = self.weights(node)
        inputs |= {weight_name(label): tensor for label, (tensor, _) in weights.items()}
        attributes = self._numbers_of(node, self._init_values(node))
        alias: dict[str, str | None] = {parameter: parameter for parameter in parameters}
        calls = [call for statement in forward.body for call in _called(statement, functions)]
        result: ast.expr | None = None
        bound: dict[str, ast.expr] = {}
        plain = True
        found: list[tuple[str, Caller]] = []
        for statement in forward.body:
            for call in _called(statement, functions):
                names = tuple(self._named(item, alias, name) for item in call.args)
                values = tuple(
                    inputs[label] if label is not None else self._argument(item, attributes, inputs)
                    for item, label in zip(call.args, names, strict=True)
                )
                found.append((_called_name(call), Caller(values, names)))
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    alias[target] = _same_tensor(value, alias)
                    inputs[target] = self._argument(value, attributes, inputs)
                    bound[target] = value
                case ast.Return(value=ast.expr() as value):
                    result = bound.get(value.id, value) if isinstance(value, ast.Name) else value
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assert():
                    continue
                case _:
                    # A branch, or a call that may change a tensor in place.
                    plain = False
        only = len(calls) == 1 and plain and result is not None and _without_same(result) is calls[0]
        if only and name == NEW_CLASS and not calls[0].keywords:
            reference = self._reference(parameters)
            if reference is not None:
                label, caller = found[0]
                found[0] = label, Caller(caller.arguments, caller.names, reference)
        return found

    def _named(self, node: ast.expr, alias: Mapping[str, str | None], owner: str) -> str | None:
        """The parameter of `forward`, or the weight, that an argument is."""
        inner = _without_same(node)
        if (
            isinstance(inner, ast.Attribute)
            and _is_self(inner.value)
            and owner == NEW_CLASS
            and inner.attr in self.shared
        ):
            return weight_name(inner.attr)
        return _same_tensor(node, alias)

    def _argument(
        self, node: ast.expr, attributes: Mapping[str, Number], inputs: Mapping[str, "Tensor | Number | None"]
    ) -> Tensor | Number | None:
        inner = _without_same(node)
        if isinstance(inner, ast.Attribute) and _is_self(inner.value):
            return attributes.get(inner.attr, inputs.get(weight_name(inner.attr)))
        return self._made(node, inputs)

    # What `Model` says

    def _init_values(self, node: ast.ClassDef) -> "dict[str, Number | tuple[Number, ...]]":
        """Parameters of a constructor -> their numbers, by `get_init_inputs` and their defaults."""
        init = _method(node, "__init__")
        if init is None:
            return {}
        parameters = [argument.arg for argument in init.args.args][1:]
        values: dict[str, Number | tuple[Number, ...]] = {}
        defaults = init.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            try:
                number = self._number(default, {})
            except (_Unclear, ArithmeticError):
                continue
            if not isinstance(number, tuple):
                values[parameter] = number
        given = self._returned("get_init_inputs")
        for parameter, value in zip(parameters, given or (), strict=False):
            if isinstance(value, (int, float, tuple)):
                values[parameter] = value
            else:
                values.pop(parameter, None)
        return values

    def _numbers_of(self, node: ast.ClassDef, init: "Mapping[str, Number | tuple[Number, ...]]") -> dict[str, Number]:
        """Attributes that the constructor sets once, to a number."""
        found: dict[str, Number] = {}
        for name, value in _attributes(node).items():
            try:
                number = self._number(value, init)
            except (_Unclear, ArithmeticError):
                continue
            if not isinstance(number, tuple):
                found[name] = number
        return found

    def _reference(self, parameters: Sequence[str]) -> str | None:
        """`Model.forward` as one expression over the parameters of `ModelNew.forward`, which are the same in the same order."""
        model = self.classes.get(REFERENCE_CLASS)
        forward = None if model is None else _method(model, "forward")
        own = None if forward is None else _parameters(forward)
        if model is None or forward is None or own is None or len(own) != len(parameters) or not self._is_module(model):
            return None
        try:
            init = self._init_values(model)
            expression = _Forward(self, model, init, dict(zip(own, parameters, strict=True))).read(forward)
        except (_Unclear, ArithmeticError, RecursionError):
            return None
        return ast.unparse(expression) if sum(1 for _ in ast.walk(expression)) <= MAX_NODES else None


class _Forward:
    """Reads the straight-line body of `Model.forward` into one expression."""

    def __init__(
        self,
        program: _Program,
        model: ast.ClassDef,
        init: Mapping[str, Number | tuple[Number, ...]],
        names: Mapping[str, str],
    ) -> None:
        self.program, self.init = program, init
        self.attributes = _attributes(model)
        self.locals: dict[str, ast.expr] = {own: ast.Name(name, ast.Load()) for own, name in names.items()}

    def read(self, forward: ast.FunctionDef) -> ast.expr:
        for statement in forward.body:
            match statement:
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.locals[name] = self.expression(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.locals[name] = self.expression(value)
                case ast.Return(value=ast.expr() as value) if not isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
                    return self.expression(value)
                case _:
                    # A branch, a loop, or `x += 1`, which changes a tensor that the caller may see.
                    raise _Unclear
            if sum(1 for _ in ast.walk(self.locals.get(name, ast.Constant(0)))) > MAX_NODES:
                raise _Unclear
        raise _Unclear

    def expression(self, node: ast.expr) -> ast.expr:
        again = self.expression
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node
            case ast.Name(id=name):
                if name in self.locals:
                    return self.locals[name]
                value = self.program.constants.get(name)
                if value is None:
                    raise _Unclear
                return ast.parse(repr(value), mode="eval").body
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                return self.attribute(attribute)
            case ast.Attribute(attr=attribute):
                if (dotted := self.program._dotted(node)) is not None:
                    return _name(dotted)
                if attribute not in ("T", "mT", "shape", "ndim"):
                    raise _Unclear
                return ast.Attribute(again(node.value), attribute, ast.Load())
            case ast.UnaryOp(op=op, operand=operand):
                return ast.UnaryOp(op, again(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return ast.BinOp(again(left), op, again(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return ast.Compare(again(left), [op], [again(right)])
            case ast.Tuple(elts=items):
                return ast.Tuple([again(item) for item in items], ast.Load())
            case ast.List(elts=items):
                return ast.List([again(item) for item in items], ast.Load())
            case ast.Subscript(value=base, slice=index):
                return ast.Subscript(again(base), self.index(index), ast.Load())
            case ast.Call():
                return self.call(node)
        raise _Unclear

    def index(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Slice(lower=lower, upper=upper, step=step):
                parts = [None if part is None else self.expression(part) for part in (lower, upper, step)]
                return ast.Slice(*parts)
            case ast.Tuple(elts=items):
                return ast.Tuple([self.index(item) for item in items], ast.Load())
            case ast.Constant(value=value) if value is Ellipsis:
                return node
        return self.expression(node)

    def attribute(self, name: str) -> ast.expr:
        if name in self.program.shared:
            return ast.Name(weight_name(name), ast.Load())
        value = self.attributes.get(name)
        if value is None:
            raise _Unclear
        try:
            number = self.program._number(value, self.init, many=True)
        except _Unclear:
            if isinstance(value, ast.Constant) and isinstance(value.value, (bool, str)):
                return value
            raise
        return ast.parse(repr(number), mode="eval").body

    def call(self, node: ast.Call) -> ast.expr:
        if any(keyword.arg is None for keyword in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
            raise _Unclear
        arguments = [self.expression(argument) for argument in node.args]
        match node.func:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                made = self.attributes.get(attribute)
                function_name = None if made is None else self.program._dotted(made)
                if function_name is None or (node.keywords and any(k.arg == "inplace" for k in node.keywords)):
                    return self.module(made, arguments, node)
                if function_name.rsplit(".", 1)[-1] in _RANDOM_OR_STATEFUL:
                    raise _Unclear
                function = _name(function_name)
            case ast.Call() as made_here:
                return self.module(made_here, arguments, node)
            case ast.Attribute(value=base, attr=method):
                dotted = self.program._dotted(node.func)
                if method in _RANDOM_OR_STATEFUL or method.endswith("_"):
                    raise _Unclear
                function = _name(dotted) if dotted else ast.Attribute(self.expression(base), method, ast.Load())
            case ast.Name(id="max" | "min" | "abs" | "float" | "int"):
                function = node.func
            case _:
                raise _Unclear
        keywords = [ast.keyword(k.arg, self.expression(k.value)) for k in node.keywords if k.arg != "inplace"]
        if any(k.arg == "inplace" and not _is(k.value, False) for k in node.keywords):
            raise _Unclear
        if any(k.arg in ("training", "generator", "out") for k in node.keywords):
            raise _Unclear
        return ast.Call(function, arguments, keywords)

    def module(self, made: ast.expr | None, arguments: list[ast.expr], node: ast.Call) -> ast.expr:
        """`self.act(x)`, where the constructor says `self.act = nn.ReLU()`; or `nn.ReLU()(x)`."""
        if not isinstance(made, ast.Call) or node.keywords or not arguments:
            raise _Unclear
        dotted = self.program._dotted(made.func) or ""
        kind = dotted.removeprefix("torch.nn.")
        if dotted == "torch.nn.Identity" and len(arguments) == 1:
            return arguments[0]
        if dotted == kind or kind not in MODULES:
            raise _Unclear
        function, parameters = MODULES[kind]
        taken: dict[str, ast.expr] = {}
        if len(made.args) > len(parameters):
            raise _Unclear
        for parameter, value in (*zip(parameters, made.args, strict=False), *((k.arg, k.value) for k in made.keywords)):
            if parameter == "inplace" and _is(value, False):
                continue
            if parameter not in parameters:
                raise _Unclear
            taken[str(parameter)] = self.setting(value)
        if len(taken) < _NEEDED.get(kind, 0):
            raise _Unclear
        return ast.Call(_name(function), arguments, [ast.keyword(name, value) for name, value in taken.items()])

    def setting(self, node: ast.expr) -> ast.expr:
        """An argument of a module's constructor: a number, a tuple of numbers, or a word."""
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (str, bool))):
            return node
        return ast.parse(repr(self.program._number(node, self.init, many=True)), mode="eval").body


def _moved(op: ast.operator, first: Tensor | Number | None, second: Tensor | Number | None) -> Tensor | None:
    """A tensor of evenly distributed values times or plus a number; of any other one only its sizes are known."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return Tensor(first.shape, first.dtype, "") if first.shape == second.shape else None
    tensor, number = (first, second) if isinstance(first, Tensor) else (second, first)
    if not isinstance(tensor, Tensor) or not isinstance(number, (int, float)):
        return None
    ends = re.fullmatch(r"uniform\((\S+),(\S+)\)", tensor.init)
    swapped = tensor is second
    if (
        ends is None
        or (swapped and not isinstance(op, (ast.Add, ast.Mult)))
        or (isinstance(op, ast.Div) and not number)
    ):
        return evolve(tensor, init="")
    function = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}.get(
        type(op)
    )
    if function is None:
        return evolve(tensor, init="")
    low, high = sorted(function(float(end), number) for end in ends.groups())
    return evolve(tensor, init=f"uniform({low:g},{high:g})")


def weight_name(attribute: str) -> str:
    """How a weight is called in a reference."""
    return f"self_{attribute}"


class _Substitution(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Name in the program -> the module of torch, or `math`, that it stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.asname and alias.name in _IMPORTS:
                        found[alias.asname] = alias.name
                    elif not alias.asname and alias.name.split(".")[0] in ("torch", "math"):
                        found[alias.name.split(".")[0]] = alias.name.split(".")[0]
                    else:
                        found.pop(alias.asname or alias.name.split(".")[0], None)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                for alias in names:
                    name = f"{module}.{alias.name}"
                    if name in _IMPORTS:
                        found[alias.asname or alias.name] = name
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {argument.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for argument in node.args}
    return {name: module for name, module in found.items() if name not in stored}


def _at_top(statement: ast.stmt) -> bool:
    """Whether names that a statement stores are the module's: not within a function or a class."""
    return not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    found = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name]
    return found[0] if len(found) == 1 and not found[0].decorator_list else None


def _parameters(function: ast.FunctionDef) -> list[str] | None:
    """The parameters after `self`; None where there are others than plain ones."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs or not arguments.args:
        return None
    return [argument.arg for argument in arguments.args[1:]]


def _attributes(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Attributes that are set once in the class, by a plain statement of the constructor."""
    count: dict[str, int] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _is_self(part.value):
            count[part.attr] = count.get(part.attr, 0) + 1
    init = _method(node, "__init__")
    found: dict[str, ast.expr] = {}
    for statement in init.body if init is not None else ():
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                if count.get(name) == 1:
                    found[name] = value
    return found


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _called(node: ast.AST, functions: Mapping[str, str]) -> list[ast.Call]:
    """Calls of an extension's functions, `module.add_cuda(...)` or `self.module.add_cuda(...)`."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in functions]


def _called_name(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr


def _without_same(node: ast.expr) -> ast.expr:
    """An expression without the methods around it that change neither values nor sizes."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_VALUES:
        node = node.func.value
    return node


def _same_tensor(node: ast.expr, alias: Mapping[str, str | None]) -> str | None:
    """The parameter of `forward` that an argument is, whatever was done to it that does not change it."""
    node = _without_same(node)
    return alias.get(node.id) if isinstance(node, ast.Name) else None


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _name(dotted: str) -> ast.expr:
    return ast.parse(dotted, mode="eval").body
