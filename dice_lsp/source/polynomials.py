"""Polynomials with integer coefficients over names: what subscripts and sizes are, as far as they are understood.

A name may itself be an expression, `cdiv(n, 4)` or `(n / 4)`, where a division has a rest.
"""

import ast
import math
import re
from collections.abc import Iterable, Mapping

from attrs import frozen

Monomial = tuple[str, ...]
"""Factors in order; a square is the same name twice."""
_IDENTIFIER = re.compile(r"[A-Za-z_@][\w.]*")
MAX_TERMS = 64
MAX_DEGREE = 8


@frozen
class Polynomial:
    """`terms[("K", "row")] = 3` is `3 * K * row`; the constant term has the empty monomial. No coefficient is zero."""

    terms: Mapping[Monomial, int]

    def __add__(self, other: "Polynomial") -> "Polynomial":
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Polynomial({monomial: coefficient for monomial, coefficient in terms.items() if coefficient})

    def __neg__(self) -> "Polynomial":
        return Polynomial({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __sub__(self, other: "Polynomial") -> "Polynomial":
        return self + -other

    def __mul__(self, other: "Polynomial") -> "Polynomial":
        terms: dict[Monomial, int] = {}
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                monomial = tuple(sorted(a + b))
                terms[monomial] = terms.get(monomial, 0) + x * y
        return Polynomial({monomial: coefficient for monomial, coefficient in terms.items() if coefficient})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and dict(self.terms) == dict(other.terms)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def too_large(self) -> bool:
        return len(self.terms) > MAX_TERMS or any(len(monomial) > MAX_DEGREE for monomial in self.terms)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for monomial in self.terms for name in monomial)

    @property
    def identifiers(self) -> frozenset[str]:
        """The names of the text in it, also within names that are expressions, see `ceiling`."""
        return frozenset(word for label in self.names for word in _IDENTIFIER.findall(label)) - {"cdiv", "max", "min"}

    @property
    def constant(self) -> int | None:
        """The value, if there are no names in it."""
        if not self.terms:
            return 0
        return self.terms.get(()) if set(self.terms) == {()} else None

    @property
    def never_negative(self) -> bool:
        """Whether no coefficient is negative: with names that are never negative, neither is the value."""
        return all(coefficient > 0 for coefficient in self.terms.values())

    @property
    def never_negative_for_sizes(self) -> bool:
        """The same with names that are sizes, so at least 1: `n - 1` is never negative."""
        sizes = {label: name(label) + ONE for label in self.names if not (isinstance(label, Quotient) and not label.up)}
        return self.substitute(sizes).never_negative

    @property
    def monomial(self) -> bool:
        return len(self.terms) == 1

    def divided_by(self, other: "Polynomial") -> "Polynomial | None":
        """The exact quotient by a monomial, or None."""
        if len(other.terms) != 1:
            return None
        ((divisor, scale),) = other.terms.items()
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            left = list(monomial)
            for name in divisor:
                if name not in left:
                    return None
                left.remove(name)
            if coefficient % scale:
                return None
            terms[tuple(left)] = coefficient // scale
        return Polynomial(terms)

    def substitute(self, values: Mapping[str, "Polynomial"]) -> "Polynomial":
        result = ZERO
        for monomial, coefficient in self.terms.items():
            term = number(coefficient)
            for factor in monomial:
                term = term * values.get(factor, name(factor))
            result = result + term
        return result

    def spelled(self) -> str:
        """As a C expression, positive terms first, the highest degree before lower ones."""
        if not self.terms:
            return "0"
        order = sorted(self.terms.items(), key=lambda item: (item[1] < 0, -len(item[0]), item[0]))
        text = ""
        for monomial, coefficient in order:
            factors = [*([str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []), *monomial]
            sign = ("-" if not text else " - ") if coefficient < 0 else ("" if not text else " + ")
            text += sign + " * ".join(factors)
        return text


def number(value: int) -> Polynomial:
    return Polynomial({(): value} if value else {})


def name(text: str) -> Polynomial:
    return Polynomial({(text,): 1})


def product(factors: Iterable[Polynomial]) -> Polynomial:
    result = ONE
    for factor in factors:
        result = result * factor
    return result


class Quotient(str):
    """A name that is a division with a rest, spelled as an expression: `cdiv(n, 4)` or `(n / 4)`."""

    __slots__ = ("by", "top", "up")

    top: Polynomial
    by: Polynomial
    up: bool
    """Rounded up; else down."""


def _quotient(top: Polynomial, by: Polynomial, *, up: bool) -> Polynomial:
    text = f"cdiv({top.spelled()}, {by.spelled()})" if up else f"({_operand(top)} / {_operand(by)})"
    quotient = Quotient(text)
    quotient.top, quotient.by, quotient.up = top, by, up
    return name(quotient)


def ceiling(top: Polynomial, by: Polynomial) -> Polynomial:
    """`top / by` rounded up."""
    top, by = _reduced(top, by)
    exact = top.divided_by(by)
    if exact is not None:
        return exact
    if top.constant is not None and by.constant:
        return number(-(-top.constant // by.constant))
    if by.constant is not None and by.constant > 1 and top.terms.get((), 0) <= 1 - by.constant:
        # cdiv(n - 3, 4) is n / 4.
        return floor(top + number(by.constant - 1), by)
    return _quotient(top, by, up=True)


def floor(top: Polynomial, by: Polynomial) -> Polynomial:
    """`top / by` rounded down, for what is never negative."""
    top, by = _reduced(top, by)
    exact = top.divided_by(by)
    if exact is not None:
        return exact
    if top.constant is not None and by.constant:
        return number(top.constant // by.constant)
    if by.constant is not None and top.terms.get((), 0) >= by.constant - 1:
        return ceiling(top - number(by.constant - 1), by)
    return _quotient(top, by, up=False)


def _reduced(top: Polynomial, by: Polynomial) -> tuple[Polynomial, Polynomial]:
    """`32 * n / 256` as `n / 8`: what divides both leaves the quotient as it is."""
    if by.constant is None or not top.terms:
        return top, by
    common = math.gcd(by.constant, *top.terms.values())
    if common < 2:
        return top, by
    return Polynomial({m: c // common for m, c in top.terms.items()}), number(by.constant // common)


def parsed(text: str, constants: Mapping[str, int]) -> Polynomial | None:
    """A size expression as a polynomial over its names, or None where it is more than that."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    result = _of_tree(tree, constants)
    return None if result is None or result.too_large else result


def _of_tree(tree: ast.expr, constants: Mapping[str, int]) -> Polynomial | None:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return number(value)
        case ast.Name(id=label):
            return number(constants[label]) if label in constants else name(label)
        case ast.BinOp(left=first, op=operator, right=second):
            left, right = _of_tree(first, constants), _of_tree(second, constants)
            if left is None or right is None:
                return None
            match operator:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div() if right.terms:
                    return floor(left, right)
                case _:
                    return None
        case ast.Call(func=ast.Name(id="cdiv"), args=[first, second], keywords=[]):
            left, right = _of_tree(first, constants), _of_tree(second, constants)
            return ceiling(left, right) if left is not None and right is not None and right.terms else None
        case _:
            return None


def rebuilt(polynomial: Polynomial, values: Mapping[str, Polynomial]) -> Polynomial:
    """`substitute` that also reaches into quotients."""
    inner = dict(values)
    for label in polynomial.names:
        if isinstance(label, Quotient) and label not in inner:
            top, by = rebuilt(label.top, values), rebuilt(label.by, values)
            inner[label] = (ceiling if label.up else floor)(top, by) if by.terms else name(label)
    return polynomial.substitute(inner)


def at_least(first: Polynomial, second: Polynomial) -> bool:
    """Whether `first` is at least `second` whatever the sizes are, as far as that can be seen."""
    difference = first - second
    if difference.never_negative_for_sizes:
        return True
    quotients = [label for label in difference.names if isinstance(label, Quotient)]
    if not quotients or len(quotients) > 4:
        return False
    # Quotients that are subtracted are no more than a larger one beside them, or than the division without a rest.
    lowest = difference
    for label in quotients:
        own = Polynomial({m: c for m, c in lowest.terms.items() if label in m})
        if own.never_negative:
            continue
        for other in quotients:
            alike = other != label and other.by == label.by and (other.up or not label.up)
            if alike and at_least(other.top, label.top):
                lowest = lowest.substitute({label: name(other)})
                break
    if lowest.never_negative_for_sizes:
        return True
    return _cleared(lowest, quotients)


def _cleared(difference: Polynomial, quotients: Iterable["Quotient"]) -> bool:
    for label in quotients:
        terms = {m: c for m, c in difference.terms.items() if label in m}
        if not terms:
            continue
        scale = label.by.constant
        if scale is None or scale < 1 or any(m.count(label) > 1 or c % scale for m, c in terms.items()):
            return False
        rest = difference - Polynomial(terms)
        for monomial, coefficient in terms.items():
            factor = Polynomial({tuple(n for n in monomial if n != label): coefficient // scale})
            slack = number(scale - 1)
            if coefficient > 0:
                bound = label.top if label.up else label.top - slack
            else:
                bound = label.top + slack if label.up else label.top
            rest = rest + factor * bound
        difference = rest
    return difference.never_negative_for_sizes


def _operand(polynomial: Polynomial) -> str:
    text = polynomial.spelled()
    return text if re.fullmatch(r"\w+", text) else f"({text})"


ZERO = number(0)
ONE = number(1)
