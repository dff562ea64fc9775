"""A random grammar of C expressions, each printable as C and, where it has a counterpart, as a torch expression.

Nodes are nested tuples: `("atom", text)`, `("number", text)`, `("binary", op, a, b)`, `("minus", a)`, `("not", a)`,
`("call", name, args...)`, `("choose", condition, a, b)`, `("cast", type, a)`. Calls carry the double name of a math
function (`exp`); printing adds the `f` of the float one.
"""

import random
from typing import Any

from attrs import field, mutable

Node = tuple[Any, ...]

_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip

_PLAIN_CALLS = {"abs", "min", "max"}

_TORCH_CALLS = {
    "exp": "torch.exp", "log": "torch.log", "sqrt": "torch.sqrt", "tanh": "torch.tanh", "sin": "torch.sin",
    "cos": "torch.cos", "fabs": "torch.abs", "floor": "torch.floor", "ceil": "torch.ceil", "trunc": "torch.trunc",
    "log1p": "torch.log1p", "expm1": "torch.expm1", "erf": "torch.erf", "rsqrt": "torch.rsqrt", "exp2": "torch.exp2",
    "log2": "torch.log2", "atan": "torch.atan", "rint": "torch.round",
}  # fmt: skip
_TORCH_METHODS = {"exp", "log", "sqrt", "tanh", "sin", "cos", "abs", "floor", "ceil", "rsqrt", "square", "erf"}


def show(node: Node, floating: str, parent: int = 0, right: bool = False) -> str:
    """C text. `floating` is `float` (calls get an `f`) or `double`."""
    kind = node[0]
    if kind in ("atom", "number"):
        text: str = node[1]
        return f"({text})" if text.startswith("-") and parent else text
    if kind == "binary":
        own = _PRECEDENCE[node[1]]
        text = f"{show(node[2], floating, own)} {node[1]} {show(node[3], floating, own, True)}"
        # gcc-style caution: bit operators and shifts are always parenthesised inside others.
        careful = (own in (3, 4, 5, 8) and parent not in (0, own)) or (own == 2 and parent == 1)
        return f"({text})" if own < parent or (own == parent and right) or careful else text
    if kind == "minus":
        inner = show(node[1], floating, 11)
        text = f"-({inner})" if inner.startswith("-") else f"-{inner}"
        return f"({text})" if parent > 10 or right else text
    if kind == "not":
        return f"{node[1]}{show(node[2], floating, 11)}"
    if kind == "call":
        name = node[1]
        if name == "rsqrt":
            inner = f"1.0{'f' if floating == 'float' else ''} / sqrt{'f' if floating == 'float' else ''}"
            text = f"{inner}({show(node[2], floating)})"
            return f"({text})" if parent >= 10 else text
        suffix = "f" if floating == "float" and name not in _PLAIN_CALLS else ""
        return f"{name}{suffix}({', '.join(show(argument, floating) for argument in node[2:])})"
    if kind == "choose":
        text = f"{_condition(node[1], floating)} ? {show(node[2], floating, 1)} : {show(node[3], floating, 1)}"
        return f"({text})" if parent else text
    if kind == "cast":
        text = f"({node[1]}){show(node[2], floating, 11)}"
        return text
    if kind == "apply":
        return f"{node[1]}({', '.join(show(argument, floating) for argument in node[2:])})"
    raise ValueError(f"no such node: {kind}")


def _condition(node: Node, floating: str) -> str:
    text = show(node, floating)
    return f"({text})" if node[0] == "binary" else text


def torch_of(node: Node, rng: random.Random, parent: int = 0, right: bool = False) -> str | None:
    """The torch expression of an elementwise node whose atoms are whole tensors, or None where there is none."""
    kind = node[0]
    if kind == "atom":
        return str(node[1])
    if kind == "number":
        text = str(node[1]).rstrip("f") if not str(node[1]).startswith("0x") else None
        return text
    if kind == "binary":
        if node[1] not in ("+", "-", "*", "/", "<", ">", "<=", ">="):
            return None
        own = _PRECEDENCE[node[1]]
        a, b = torch_of(node[2], rng, own), torch_of(node[3], rng, own, True)
        if a is None or b is None:
            return None
        if node[1] == "*" and a == b and rng.random() < 0.5:
            return f"({a}) ** 2" if node[2][0] != "atom" else f"{a} ** 2"
        text = f"{a} {node[1]} {b}"
        return f"({text})" if own < parent or (own == parent and right) else text
    if kind == "minus":
        a = torch_of(node[1], rng, 11)
        return None if a is None else (f"(-{a})" if parent > 9 or right else f"-{a}")
    if kind == "call":
        name, arguments = node[1], node[2:]
        shown = [torch_of(argument, rng) for argument in arguments]
        if any(argument is None for argument in shown):
            return None
        constant = [argument[0] == "number" for argument in arguments]
        if name in ("fmax", "fmin") and len(arguments) == 2:
            if all(constant):
                return None
            if constant[1]:
                inner = arguments[0]
                other = "fmin" if name == "fmax" else "fmax"
                if inner[0] == "call" and inner[1] == other and inner[3][0] == "number":
                    value = torch_of(inner[2], rng)
                    low, high = (inner[3], arguments[1]) if other == "fmax" else (arguments[1], inner[3])
                    return f"torch.clamp({value}, {torch_of(low, rng)}, {torch_of(high, rng)})"
                if name == "fmax" and arguments[1][1].rstrip("f") == "0.0" and rng.random() < 0.7:
                    return f"torch.relu({shown[0]})"
                return f"torch.clamp({shown[0]}, {'min' if name == 'fmax' else 'max'}={shown[1]})"
            if constant[0]:
                return None
            return f"torch.{'maximum' if name == 'fmax' else 'minimum'}({shown[0]}, {shown[1]})"
        if name == "pow" and constant[1]:
            return f"torch.pow({shown[0]}, {shown[1]})"
        if name == "fma":
            return f"{_wrap(shown[0])} * {_wrap(shown[1])} + {_wrap(shown[2])}" if not parent else None
        if name == "atan2":
            return f"torch.atan2({shown[0]}, {shown[1]})" if not any(constant) else None
        if name not in _TORCH_CALLS or constant[0]:
            return None
        method = _TORCH_CALLS[name].removeprefix("torch.")
        if method in _TORCH_METHODS and arguments[0][0] == "atom" and rng.random() < 0.4:
            return f"{shown[0]}.{method}()"
        return f"{_TORCH_CALLS[name]}({shown[0]})"
    if kind == "choose":
        condition = torch_of(node[1], rng) if node[1][0] == "binary" else None
        a, b = torch_of(node[2], rng), torch_of(node[3], rng)
        if condition is None or a is None or b is None:
            return None
        return f"torch.where({condition}, {a}, {b})"
    return None


def _wrap(text: str | None) -> str:
    assert text is not None
    return text if text.replace("_", "").replace(".", "").isalnum() else f"({text})"


@mutable
class Grammar:
    """Draws expressions of one element type."""

    rng: random.Random
    element: str
    """`float`, `double`, `int` or `unsigned`."""
    calls: bool = True
    constants: list[str] = field(factory=list)
    """Named constants (macros) that may stand where a literal may."""

    @property
    def floating(self) -> bool:
        return self.element in ("float", "double", "T")

    @property
    def shown_as(self) -> str:
        return "float" if self.element == "float" else "double"

    def text(self, node: Node) -> str:
        return show(node, self.shown_as)

    def number(self) -> Node:
        rng = self.rng
        if self.constants and rng.random() < 0.4:
            return ("atom", rng.choice(self.constants))
        if not self.floating:
            value = rng.choice([1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 17, 31, 64, 100, 255, rng.randrange(2, 9999)])
            if self.element == "unsigned" and rng.random() < 0.6:
                return ("number", (hex(rng.getrandbits(32)) if rng.random() < 0.3 else str(value)) + "u")
            return ("number", str(value))
        roll = rng.random()
        if roll < 0.45:
            text = rng.choice(["1.0", "2.0", "0.5", "0.0", "3.0", "4.0", "0.25", "0.1", "10.0"])
        elif roll < 0.55:
            text = rng.choice(["1e-5", "1e-6", "1e-3", "1e-8", "6.0", "255.0", "100.0", "0.01", "1.5", "0.75"])
        else:
            text = f"{rng.choice([0.1, 1, 1, 10, 100]) * rng.random():.{rng.randrange(1, 6)}f}"
            text = text.rstrip("0")
            text += "0" if text.endswith(".") else ""
            if not text.strip("0."):
                text = "0.3"
        return ("number", text + ("f" if self.element == "float" else ""))

    def one(self) -> Node:
        return ("number", {"float": "1.0f", "int": "1", "unsigned": "1u"}.get(self.element, "1.0"))

    def leaf(self, atoms: list[str]) -> Node:
        return ("atom", self.rng.choice(atoms))

    def expression(self, atoms: list[str], terms: int | None = None, integers: list[str] | None = None) -> Node:
        """A random expression that uses `terms` leaves, every atom if there are enough."""
        rng = self.rng
        if terms is None:
            terms = min(7, max(1, len(atoms) + rng.choice([-1, 0, 0, 0, 1, 1, 2])))
        chosen = rng.sample(atoms, min(terms, len(atoms)))
        pool: list[Node] = [("atom", atom) for atom in chosen]
        while len(pool) < terms:
            pool.append(self.number() if rng.random() < 0.6 else self.leaf(atoms))
        if integers and self.floating and rng.random() < 0.3:
            pool.append(("cast", self.element, ("atom", rng.choice(integers))))
        if len(pool) == 1 and rng.random() < 0.85:
            pool.append(self.number())
            if rng.random() < 0.3:
                pool.append(self.number())
        pool = [self.wrap(node, 0.18) for node in pool]
        # A constant is merged with something that is none: constant arithmetic is not what people write.
        while len(pool) > 1:
            a, b = rng.sample(range(len(pool)), 2)
            if pool[a][0] == "number" and pool[b][0] == "number" and len(pool) > 2:
                continue
            first, second = pool[a], pool[b]
            pool = [node for at, node in enumerate(pool) if at not in (a, b)]
            pool.append(self.wrap(self.merge(first, second), 0.22))
        return pool[0]

    def merge(self, a: Node, b: Node) -> Node:
        rng = self.rng
        if self.floating:
            roll = rng.random()
            if a[0] == "number" and b[0] == "number":
                return ("binary", "*", a, b)
            if roll < 0.28:
                return ("binary", "+", a, b)
            if roll < 0.48:
                return ("binary", "-", a, b)
            if roll < 0.78:
                return ("binary", "*", a, b)
            if roll < 0.88:
                return self.quotient(a, b)
            if not self.calls:
                return ("binary", "+", a, b)
            if roll < 0.95:
                if a[0] == "number":
                    a, b = b, a
                return ("call", rng.choice(["fmax", "fmin"]), a, b)
            if roll < 0.965 and a[0] != "number" and b[0] != "number":
                return ("call", rng.choice(["atan2", "hypot", "copysign", "fdim"]), a, b)
            if roll < 0.985:
                return ("choose", self.condition(a, b), a, b)
            return ("call", "fma", a, b, self.number())
        roll = rng.random()
        if roll < 0.22:
            return ("binary", "+", a, b)
        if roll < 0.36:
            return ("binary", "-", a, b)
        if roll < 0.5:
            return ("binary", "*", a, b)
        if roll < 0.74:
            return ("binary", rng.choice("&|^"), a, b)
        if roll < 0.84:
            return ("binary", rng.choice(["<<", ">>"]), a, self.shift(b))
        if roll < 0.92:
            return ("binary", rng.choice("/%"), a, ("number", self._divisor()))
        if roll < 0.97:
            return ("choose", self.condition(a, b), a, b)
        return ("call", rng.choice(["min", "max"]), a, b) if self.element == "int" else ("binary", "^", a, b)

    def _divisor(self) -> str:
        value = str(self.rng.choice([2, 3, 4, 5, 7, 8, 10, 16, 32, 64, 100, self.rng.randrange(2, 300)]))
        return value + ("u" if self.element == "unsigned" and self.rng.random() < 0.5 else "")

    def shift(self, node: Node) -> Node:
        suffix = "u" if self.element == "unsigned" and self.rng.random() < 0.3 else ""
        if node[0] == "atom" and self.rng.random() < 0.4:
            return ("binary", "&", node, ("number", self.rng.choice(["7", "15", "31", "3"]) + suffix))
        return ("number", str(self.rng.randrange(1, 20)) + suffix)

    def quotient(self, a: Node, b: Node) -> Node:
        rng = self.rng
        if b[0] == "number":
            return ("binary", "/", a, b if b[1].strip("0.f") else self.one())
        roll = rng.random()
        if roll < 0.4:
            return ("binary", "/", a, ("binary", "+", self.one(), ("call", "fabs", b)))
        if roll < 0.7:
            return ("binary", "/", a, ("binary", "+", ("binary", "*", b, b), self.number_above_zero()))
        if roll < 0.85:
            return ("binary", "/", a, ("binary", "+", ("call", "exp", ("minus", b)), self.one()))
        return ("binary", "/", a, ("binary", "+", b, self.number_above_zero()))

    def number_above_zero(self) -> Node:
        text = self.rng.choice(["1.0", "0.5", "2.0", "1e-5", "1e-6", "0.1", f"{self.rng.random() + 0.1:.2f}"])
        return ("number", text + ("f" if self.element == "float" else ""))

    def condition(self, a: Node, b: Node | None = None) -> Node:
        rng = self.rng
        if b is None:
            b = self.number()
        plain: Node = ("binary", rng.choice(["<", ">", ">", "<=", ">="]), a, b)
        if not self.floating and rng.random() < 0.5:
            kind = rng.random()
            if kind < 0.4:
                number = self._divisor()
                zero = "0u" if number.endswith("u") else "0"
                return ("binary", rng.choice(["==", "!="]), ("binary", "%", a, ("number", number)), ("number", zero))
            if kind < 0.7:
                mask = self.number()
                return ("binary", rng.choice(["==", "!="]), ("binary", "&", a, mask), ("number", "0"))
        if rng.random() < 0.12:
            return ("binary", rng.choice(["&&", "||"]), plain, ("binary", rng.choice("<>"), a, self.number()))
        return plain

    def wrap(self, node: Node, chance: float) -> Node:
        """Perhaps a function of `node`; arguments are kept in the function's domain most of the time."""
        rng = self.rng
        if rng.random() > chance or node[0] == "number":
            return node
        if not self.floating:
            roll = rng.random()
            if roll < 0.3:
                return ("not", "~", node)
            if roll < 0.6:
                return ("binary", rng.choice(["<<", ">>"]), node, self.shift(self.number()))
            if roll < 0.8 and self.element == "int":
                return ("call", "abs", node)
            return ("binary", "&", node, self.number())
        if not self.calls:
            return ("minus", node) if rng.random() < 0.5 else ("binary", "*", node, node)
        roll = rng.random()
        if roll < 0.1:
            return ("minus", node)
        if roll < 0.2 and node[0] == "atom":
            return ("binary", "*", node, node)
        if roll < 0.5:
            return (
                "call",
                rng.choice(["fabs", "tanh", "sin", "cos", "floor", "ceil", "trunc", "round", "fabs", "tanh"]),
                node,
            )
        if roll < 0.62:
            return ("call", "exp", ("minus", node) if rng.random() < 0.5 else node)
        if roll < 0.7:
            safe: Node = ("binary", "+", ("call", "fabs", node), self.number_above_zero())
            return ("call", rng.choice(["log", "log", "log2", "log10"]), safe)
        if roll < 0.78:
            inner: Node = ("call", "fabs", node) if rng.random() < 0.6 else (
                "binary", "+", ("binary", "*", node, node), self.number_above_zero()
            )  # fmt: skip
            return ("call", rng.choice(["sqrt", "sqrt", "rsqrt"]) if inner[0] == "binary" else "sqrt", inner)
        if roll < 0.84:
            low, high = sorted((self.number_above_zero()[1], self.number_above_zero()[1]))
            suffix = "f" if self.element == "float" else ""
            if rng.random() < 0.5:
                low = rng.choice(["0.0", "-1.0", "0.0", "-0.5"]) + suffix
            bounded: Node = ("call", "fmax", node, ("number", low))
            if rng.random() < 0.5:
                return ("call", "fmin", bounded, ("number", high))
            return ("call", "fmax", ("call", "fmin", node, ("number", high)), ("number", low))
        if roll < 0.88:
            return ("call", "pow", ("call", "fabs", node), self.number())
        if roll < 0.93:
            name = rng.choice(["expm1", "erf", "atan", "exp2", "cbrt", "rint", "log1p", "fmod", "sinh", "asin"])
            if name == "log1p":
                return ("call", name, ("call", "fabs", node))
            if name == "fmod":
                return ("call", name, node, self.number_above_zero())
            if name == "asin":
                return ("call", "atan", node)
            return ("call", name, node)
        if roll < 0.97:
            return ("choose", self.condition(node), node, self.number() if rng.random() < 0.5 else ("minus", node))
        return ("cast", self.element, ("cast", "int", node))
