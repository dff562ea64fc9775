"""Values of host code as far as a text says them: numbers with where they come from, pointers, structs, functions.

A number is a term over names, so that a launch can be said in the sizes that its kernel is given: `(n + 255) / 256`
instead of 4096. A term has a value too where the program gives it one. Two terms are equal when they are built alike;
a name stands for itself alone, whatever else has the same value.
"""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Union

from attrs import field, frozen

from dice_lsp.source.expressions import SIZEOF, canonical_type

MAX_LEAVES = 80
"""Longest term; what grows beyond is no size of a launch."""
_uids = itertools.count(1)
_COMMUTATIVE = {"+", "*", "==", "!=", "&", "|", "^", "&&", "||", "min", "max"}
_COMPARISONS = {"==", "!=", "<", ">", "<=", ">=", "&&", "||"}
_LEVELS = {"?:": 0, "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
           "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10}  # fmt: skip
FLOATING = {"float", "double", "long double"}
_UNSIGNED = {"bool", "size_t", "uintptr_t", "uint", "ulong", "ulonglong", "uchar", "ushort"}


class Term:
    """An arithmetic expression. `value` is what it is in the program's own run, None where that is not known."""

    __slots__ = ("assumed", "key", "label", "leaves", "operands", "operator", "pinned", "reason", "value")

    def __init__(
        self,
        operator: str,
        operands: tuple["Term", ...] = (),
        value: float | None = None,
        label: str = "",
        *,
        reason: str = "",
        assumed: bool = False,
        pinned: bool = False,
    ) -> None:
        self.operator, self.operands, self.value, self.label, self.reason = operator, operands, value, label, reason
        self.assumed: bool = assumed or any(operand.assumed for operand in operands)
        """Whether it depends on the GPU or on anything else that another machine answers differently."""
        self.pinned: bool = pinned or any(operand.pinned for operand in operands)
        """Whether it depends on a size in a way that cannot be written down: the size must not change then."""
        self.leaves: int = sum(operand.leaves for operand in operands) or 1
        if operator == "const":
            self.key = repr(value)
        elif operator == "alias":
            self.key = f"#{next(_uids)}"
        elif operands:
            self.key = f"({operator} {' '.join(operand.key for operand in operands)})"
        else:
            self.key = f"#{next(_uids)}"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Term) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Term({spell_plainly(self)})"

    @property
    def is_constant(self) -> bool:
        return self.operator == "const"

    def walk(self) -> Iterator["Term"]:
        """The term and every part of it."""
        stack = [self]
        while stack:
            term = stack.pop()
            yield term
            stack.extend(term.operands)

    def sources(self) -> Iterator["Term"]:
        """The names that it is built from."""
        return (term for term in self.walk() if term.operator in ("var", "free"))


def constant(value: float) -> Term:
    """A number as written."""
    return Term("const", value=value)


def variable(label: str, value: float, *, assumed: bool = False) -> Term:
    """A name with a value that the program gives it."""
    return Term("var", value=value, label=label, assumed=assumed)


def alias(label: str, term: Term) -> Term:
    """A variable that holds a term: a name of its own, and what it stands for."""
    return Term("alias", (term,), term.value, label)


def unknown_term(label: str, reason: str = "", *, size: bool = False) -> Term:
    """A name without a value. With `size` any value would do: it is a parameter of a function that nobody calls."""
    return Term("free", label=label, reason="" if size else reason or f"`{label}`", assumed=True)


def is_size(term: Term) -> bool:
    """Whether a name is a free size: see `unknown_term`."""
    return term.operator == "free" and not term.reason


@frozen
class Number:
    """An arithmetic value of a C type (`int`, `size_t`, `float`, ...)."""

    term: Term
    ctype: str = "int"

    @property
    def value(self) -> float | None:
        return self.term.value

    @property
    def floating(self) -> bool:
        return self.ctype in FLOATING


@frozen(eq=False)
class Block:
    """One allocation, or what a pointer parameter points to: then its size is not known."""

    label: str
    nbytes: Term | None
    kind: str = "device"
    """`device`, `managed`, `host` or `given` (a parameter)."""
    line: int | None = None
    count: Term | None = None
    """Number of elements, whatever their type is: of a tensor whose memory is asked for without one."""
    shape: tuple[Term, ...] | None = None
    """The factors of `count`, outermost first, where the number of dimensions is known."""


@frozen
class Pointer:
    """A pointer into a block; no block is the null pointer."""

    block: Block | None
    offset: Term
    """In bytes."""
    element: str = "void"


@frozen
class Address:
    """The address of a variable, or of a part of it."""

    cell: int
    path: tuple[str | int, ...] = ()
    element: str = "void"


@frozen
class Spot:
    """A place in memory: a variable, or a part of it."""

    cell: int
    path: tuple[str | int, ...] = ()


@frozen
class Struct:
    """A struct by value: `dim3` and those of the text."""

    type: str
    fields: Mapping[str, "Value"] = field(factory=dict)


@frozen
class Array:
    """An array or an initialiser list whose items are known."""

    items: tuple["Value", ...]
    element: str = ""


@frozen
class Thing:
    """An object of a library that is known: a `std::vector`, a tensor."""

    kind: str
    name: str
    fields: Mapping[str, "Value"] = field(factory=dict)


@frozen(eq=False)
class Lambda:
    """A lambda with what it captured."""

    tree: Any
    names: Mapping[str, Any]
    unit: Any = None


@frozen
class FunctionName:
    """A function or a kernel as a value."""

    name: str
    template: tuple[str, ...] = ()


@frozen
class Text:
    """A string."""

    text: str


@frozen
class Unknown:
    """A value of which nothing is known, and why."""

    reason: str = ""


Value = Union[Number, Pointer, Address, Struct, Array, Thing, Lambda, FunctionName, Text, Unknown]
NOTHING = Unknown()


def whole(value: int, ctype: str = "int") -> Number:
    """A literal."""
    return Number(constant(value), ctype)


def type_width(ctype: str) -> int | None:
    """Bytes of an arithmetic or vector type."""
    return SIZEOF.get(canonical_type(ctype))


def _is_unsigned(ctype: str) -> bool:
    return ctype.startswith("unsigned") or ctype in _UNSIGNED or (ctype.startswith("uint") and ctype.endswith("_t"))


def common_type(first: str, second: str) -> str:
    """The type of `a + b` (usual arithmetic conversions, C17 6.3.1.8)."""
    if first in FLOATING or second in FLOATING:
        return "double" if "double" in (first, second) or "long double" in (first, second) else "float"
    widths = [SIZEOF.get(name, 4) for name in (first, second)]
    if max(widths) < 4:
        return "int"
    if widths[0] == widths[1]:
        return first if _is_unsigned(first) else second
    return first if widths[0] > widths[1] else second


def fits(value: float, ctype: str) -> float | None:
    """`value` as the type holds it: wrapped around when unsigned, None when a signed type cannot hold it."""
    if ctype in FLOATING:
        try:
            return struct.unpack("f", struct.pack("f", value))[0] if ctype == "float" else float(value)
        except OverflowError:
            return None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = int(value)
    if ctype == "bool":
        return int(bool(value))
    bits = 8 * SIZEOF.get(ctype, 8)
    if _is_unsigned(ctype):
        return value % (1 << bits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


_OF_INTEGERS = {"/", "%", "<<", ">>", "&", "|", "^", "~"}


def _compute(operator: str, values: tuple[float, ...], ctype: str) -> float | None:
    try:
        result = _calculate(operator, values, ctype)
    except (OverflowError, ValueError, ZeroDivisionError):
        return None
    return None if result is None else fits(result, "int" if operator in _COMPARISONS else ctype)


def _calculate(operator: str, values: tuple[float, ...], ctype: str) -> float | None:
    if ctype not in FLOATING and operator in _OF_INTEGERS:
        # A whole number that came out of a floating type, as in `(int)floor(x) % 512`.
        values = tuple(int(value) if isinstance(value, float) and value.is_integer() else value for value in values)
    a = values[0]
    b = values[1] if len(values) > 1 else 0
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/" if ctype in FLOATING:
            return a / b
        case "/" | "%":
            if b == 0 or isinstance(a, float) or isinstance(b, float):
                return None
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if operator == "/" else a - quotient * b
        case "<<" | ">>" | "&" | "|" | "^":
            if isinstance(a, float) or isinstance(b, float):
                return None
            if operator in ("<<", ">>"):
                return None if not 0 <= b < 64 else a << b if operator == "<<" else a >> b
            return a & b if operator == "&" else a | b if operator == "|" else a ^ b
        case "==" | "!=" | "<" | ">" | "<=" | ">=":
            answers = {"==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}
            return int(answers[operator])
        case "&&" | "||":
            return int(bool(a) and bool(b)) if operator == "&&" else int(bool(a) or bool(b))
        case "min" | "max":
            return min(a, b) if operator == "min" else max(a, b)
        case "?:":
            return values[1] if a else values[2]
        case "neg":
            return -a
        case "~":
            return None if isinstance(a, float) else ~a
        case "!":
            return int(not a)
        case "cdiv":
            return -(-a // b)
        case _:
            return None


def build(operator: str, operands: tuple[Term, ...], ctype: str = "int") -> Term:
    """The term of an operation, simplified, with its value if the operands have theirs."""
    value: float | None = None
    if all(operand.value is not None for operand in operands):
        value = _compute(operator, tuple(operand.value for operand in operands if operand.value is not None), ctype)
        if value is None:
            return unknown_term("an overflow", "a value that its type does not hold")
        if all(operand.is_constant for operand in operands):
            return constant(value)
    simple = _simplified(operator, operands, ctype)
    if simple is not None:
        return simple
    if sum(operand.leaves for operand in operands) > MAX_LEAVES:
        if value is None:
            return unknown_term("a long expression", "a long expression")
        return Term("var", value=value, label="", assumed=any(o.assumed for o in operands), pinned=True)
    if ctype in FLOATING and operator not in _COMPARISONS:
        operator = f"f{operator}"
    if operator in _COMMUTATIVE and (operands[0].is_constant, operands[0].key) > (
        operands[1].is_constant,
        operands[1].key,
    ):
        # Written in one order, so that `n * m` and `m * n` are the same; constants go last.
        if operands[0].is_constant or operator in ("*", "+"):
            operands = operands[1], operands[0]
    return Term(operator, operands, value)


def _simplified(operator: str, operands: tuple[Term, ...], ctype: str) -> Term | None:
    if ctype in FLOATING:
        return None
    first = operands[0]
    if operator == "?:":
        if first.is_constant:
            return operands[1] if first.value else operands[2]
        return operands[1] if operands[1] == operands[2] else None
    if len(operands) != 2:
        return None
    second = operands[1]
    if operator in ("+", "*") and first.is_constant:
        first, second = second, first
    if not second.is_constant:
        if operator == "-" and first == second:
            return constant(0)
        return None
    number = second.value
    if (operator in ("+", "-", "<<", ">>") and number == 0) or (operator in ("*", "/") and number == 1):
        return first
    if operator == "*" and number == 0:
        return constant(0)
    if operator in ("+", "-") and first.operator in ("+", "-") and first.operands[1].is_constant:
        inner = first.operands[1].value
        assert inner is not None and number is not None
        total = (inner if first.operator == "+" else -inner) + (number if operator == "+" else -number)
        sign, amount = ("+", total) if total >= 0 else ("-", -total)
        return build(sign, (first.operands[0], constant(amount)), ctype)
    if operator == "*" and first.operator == "*" and first.operands[1].is_constant:
        inner = first.operands[1].value
        assert inner is not None and number is not None
        return build("*", (first.operands[0], constant(inner * number)), ctype)
    return None


def binary(operator: str, first: Value, second: Value) -> Value:
    """`a operator b` as C says it, for numbers; pointers are moved by whole elements."""
    if isinstance(first, Pointer) and isinstance(second, Number) and operator in ("+", "-"):
        width = type_width(first.element) or (8 if first.element.endswith("*") else None)
        if width is None:
            return Unknown(f"the size of `{first.element}`")
        step = build("*", (second.term, constant(width)), "long")
        return Pointer(first.block, build(operator, (first.offset, step), "long"), first.element)
    if isinstance(second, Pointer) and isinstance(first, Number) and operator == "+":
        return binary("+", second, first)
    if operator in ("==", "!=", "&&", "||"):
        compared = _truths(operator, first, second)
        if isinstance(compared, Number):
            return compared
        first, second = compared
    if not isinstance(first, Number) or not isinstance(second, Number):
        reason = next((v.reason for v in (first, second) if isinstance(v, Unknown) and v.reason), "")
        return Unknown(reason)
    if operator in ("&&", "||"):
        for known in (first, second):
            if known.value is not None and bool(known.value) == (operator == "||"):
                if first.value is None or second.value is None:
                    return whole(int(operator == "||"))
    ctype = first.ctype if operator in ("<<", ">>") else common_type(first.ctype, second.ctype)
    if operator in ("<<", ">>") and SIZEOF.get(ctype, 4) < 4:
        ctype = "int"
    if ctype in FLOATING and operator in ("%", "<<", ">>", "&", "|", "^"):
        return NOTHING
    result = "bool" if operator in _COMPARISONS else ctype
    return Number(build(operator, (first.term, second.term), ctype), result)


def _truths(operator: str, first: Value, second: Value) -> "tuple[Number, Number] | Number":
    """Both operands of a comparison or of a logical operator as numbers, or the answer where they are none."""
    if isinstance(first, Number) and isinstance(second, Number):
        return first, second
    unknown = Number(unknown_term("a comparison"), "bool")
    if operator in ("==", "!="):
        # Pointers are compared with null only; what else they are equal to is not known.
        zero = any((isinstance(value, Number) and value.value == 0) or _is_null(value) for value in (first, second))
        truths = truth(first), truth(second)
        return unknown if not zero or truths[0] is None or truths[1] is None else (truths[0], truths[1])
    one, other = truth(first), truth(second)
    if one is not None and other is not None:
        return one, other
    known = one if one is not None else other
    if known is not None and known.value is not None and bool(known.value) == (operator == "||"):
        return whole(int(operator == "||"), "bool")
    return unknown


def _is_null(value: Value) -> bool:
    return isinstance(value, Pointer) and value.block is None


def truth(value: Value) -> Number | None:
    """Whether a value counts as true; None where that is not known."""
    match value:
        case Number():
            return value
        case Pointer():
            return whole(int(value.block is not None)) if value.block is None or value.block.kind != "given" else None
        case Address() | Text() | Lambda() | FunctionName():
            return whole(1)
        case _:
            return None


def convert(value: Value, ctype: str) -> Value:
    """A number as another arithmetic type; a fraction is cut off, as in C."""
    if not isinstance(value, Number) or value.ctype == ctype:
        return value
    term = value.term
    if ctype == "bool":
        return Number(build("!=", (term, constant(0)), value.ctype), "bool")
    if ctype in FLOATING:
        if not term.is_constant or term.value is None:
            return Number(term, ctype)
        held = fits(term.value, ctype)
        return Number(constant(float(term.value) if held is None else held), ctype)
    if value.floating:
        return Number(rounded("trunc", value).term, ctype)
    if term.value is not None and fits(term.value, ctype) != term.value:
        held = fits(term.value, ctype)
        if held is None:
            return Number(unknown_term("an overflow", "a value that its type does not hold"), ctype)
        return Number(Term("var", value=held, assumed=term.assumed, pinned=True), ctype)
    return Number(term, ctype)


def rounded(how: str, number: Number) -> Number:
    """`ceil`, `floor`, `trunc` or `round` of a number; a quotient of integers becomes an integer division."""
    term = number.term
    if not number.floating:
        return number
    value: float | None = None
    if term.value is not None and math.isfinite(term.value):
        value = float(_round(how, float(term.value)))
    if term.is_constant and value is not None:
        return Number(constant(value), number.ctype)
    if term.operator == "f/" and all(_is_integer(operand) for operand in term.operands) and how != "round":
        quotient = Term("cdiv" if how == "ceil" else "/", tuple(_whole_leaf(o) for o in term.operands), value)
        return Number(quotient, number.ctype)
    if _is_integer(term):
        return number
    if value is not None:
        return Number(Term("var", value=value, assumed=term.assumed, pinned=True), number.ctype)
    return Number(unknown_term("a fraction", "a fraction"), number.ctype)


def _round(how: str, value: float) -> int:
    match how:
        case "ceil":
            return math.ceil(value)
        case "floor":
            return math.floor(value)
        case "trunc":
            return math.trunc(value)
        case _:
            # Halves away from zero, as C's `round`.
            return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


def _is_integer(term: Term) -> bool:
    """Whether a term of a floating type holds an integer that was converted."""
    if term.is_constant:
        return term.value is not None and float(term.value).is_integer()
    if term.operator in ("f*", "alias"):
        return all(_is_integer(operand) for operand in term.operands)
    return not term.operator.startswith("f") or term.operator == "free"


def _is_plain(term: Term) -> bool:
    """Whether no part of a term is of a floating type."""
    return not any(part.operator.startswith("f") and part.operator != "free" for part in term.walk())


def _whole_leaf(term: Term) -> Term:
    if term.is_constant and term.value is not None:
        return constant(int(term.value))
    if term.operator == "alias" and not _is_plain(term):
        return _whole_leaf(term.operands[0])
    if term.operator == "f*":
        return build("*", (_whole_leaf(term.operands[0]), _whole_leaf(term.operands[1])), "long")
    return term


def opaque(how: str, number: Number, value: float | None, ctype: str = "double") -> Number:
    """The result of a function that is no expression of ours: its value counts, its argument must not change."""
    if value is not None and math.isfinite(value):
        if number.term.is_constant:
            return Number(constant(value), ctype)
        return Number(Term("var", value=value, assumed=number.term.assumed, pinned=True), ctype)
    return Number(unknown_term(f"{how}(...)", f"`{how}(...)`"), ctype)


def replaced(term: Term, names: Mapping[Term, Term]) -> Term:
    """The term with parts replaced and everything else that has a value of its own as that number."""
    known = names.get(term)
    if known is not None:
        return known
    if term.operator == "var" and term.value is not None:
        return constant(int(term.value) if float(term.value).is_integer() else term.value)
    if not term.operands:
        return term
    if term.operator == "alias":
        return replaced(term.operands[0], names)
    operands = tuple(replaced(operand, names) for operand in term.operands)
    if term.operator.startswith("f") and term.operator != "free":
        return build(term.operator[1:], operands, "double")
    return build(term.operator, operands, "long")


def divided(term: Term, width: int) -> Term:
    """`term / width`, with the division done where a factor allows it."""
    exact = _divided(term, width)
    return exact if exact is not None else build("/", (term, constant(width)), "long")


def _divided(term: Term, width: int) -> Term | None:
    if width == 1:
        return term
    if term.operator == "alias":
        return _divided(term.operands[0], width)
    if term.is_constant and term.value is not None:
        return constant(int(term.value) // width) if int(term.value) % width == 0 else None
    if term.operator == "*":
        first, second = term.operands
        for one, other in ((second, first), (first, second)):
            if (part := _divided(one, width)) is not None:
                return build("*", (other, part), "long")
        if second.is_constant and second.value is not None:
            common = math.gcd(int(second.value), width)
            if common > 1 and (part := _divided(first, width // common)) is not None:
                return build("*", (part, constant(int(second.value) // common)), "long")
    if term.operator in ("+", "-"):
        parts = [_divided(operand, width) for operand in term.operands]
        if parts[0] is not None and parts[1] is not None:
            return build(term.operator, (parts[0], parts[1]), "long")
    return None


class Unspellable(Exception):
    """A term that no expression of `source.expressions` says; `term` is the part that is to blame."""

    def __init__(self, term: Term) -> None:
        super().__init__(term.label)
        self.term = term


def spell(term: Term) -> str:
    """A term as a C integer expression of its names.

    Raises:
        Unspellable: it holds a name without a label of its own, or an operation that has no such form.

    """
    return _spell(term, strict=True)[0]


def spell_plainly(term: Term) -> str:
    """For people: like `spell`, whatever it holds."""
    return _spell(term, strict=False)[0]


def _spell(term: Term, *, strict: bool) -> tuple[str, int]:
    if term.is_constant:
        value = term.value
        assert value is not None
        if not float(value).is_integer():
            if strict:
                raise Unspellable(term)
            return repr(value), 12
        return str(int(value)), 12 if value >= 0 else 8
    if not term.operands:
        if strict and term.operator != "name":
            raise Unspellable(term)
        return term.label or "?", 12
    operator = term.operator
    if operator == "alias":
        return _spell(term.operands[0], strict=strict)
    if strict and operator.startswith("f"):
        raise Unspellable(term)
    parts = [_spell(operand, strict=strict) for operand in term.operands]
    if operator == "/" and (wide := _rounded_up(term)) is not None:
        return f"cdiv({_spell(wide, strict=strict)[0]}, {parts[1][0]})", 12
    if operator in ("cdiv", "min", "max"):
        return f"{operator}({parts[0][0]}, {parts[1][0]})", 12
    if operator == "?:":
        return " ".join((_closed(parts[0], 1), "?", _closed(parts[1], 1), ":", _closed(parts[2], 1))), 0
    if operator in ("neg", "~", "!"):
        return f"{'-' if operator == 'neg' else operator}{_closed(parts[0], 11)}", 11
    level = _LEVELS.get(operator)
    if level is None:
        if strict:
            raise Unspellable(term)
        return f"{operator}({', '.join(part[0] for part in parts)})", 12
    right = level if operator in ("+", "*") and term.operands[1].operator == operator else level + 1
    return f"{_closed(parts[0], level)} {operator} {_closed(parts[1], right)}", level


def _rounded_up(term: Term) -> Term | None:
    """`a` of `(a + b - 1) / b`."""
    sum_, divisor = term.operands
    if sum_.operator not in ("+", "-") or len(sum_.operands) != 2:
        return None
    first, second = sum_.operands
    if divisor.is_constant and second.is_constant and divisor.value is not None:
        if sum_.operator == "+" and second.value == divisor.value - 1:
            return first
    if sum_.operator == "-" and second.is_constant and second.value == 1 and first.operator == "+":
        for one, other in (first.operands, first.operands[::-1]):
            if other == divisor:
                return one
    return None


def _closed(part: tuple[str, int], level: int) -> str:
    return part[0] if part[1] >= level else f"({part[0]})"
