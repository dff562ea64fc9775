"""C integer expressions, evaluated by ourselves: text from a document is never given to `eval`.

Values are Python integers without wrap-around, since sizes are meant; division and remainder truncate as in C
(C17 6.5.5). Beyond C there are `cdiv(a, b)` = ceil(a / b), `min`, `max`, and the suffixes K, M, G with K = 1024.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from dice_lsp.source.tokens import Kind, Token, code

MAX_BITS = 256
"""Longest intermediate value; nothing that is launched comes near it, `1 << (1 << 40)` does."""
MAX_DEPTH = 100
MAX_TOKENS = 2000

SIZEOF = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "uchar": 1, "int8_t": 1, "uint8_t": 1,
    "__nv_fp8_e4m3": 1, "__nv_fp8_e5m2": 1, "char2": 2, "uchar2": 2, "char3": 3, "uchar3": 3, "char4": 4, "uchar4": 4,
    "short": 2, "unsigned short": 2, "ushort": 2, "int16_t": 2, "uint16_t": 2, "half": 2, "__half": 2,
    "__nv_bfloat16": 2, "nv_bfloat16": 2, "half2": 4, "__half2": 4, "__nv_bfloat162": 4, "short2": 4, "ushort2": 4,
    "short3": 6, "ushort3": 6, "short4": 8, "ushort4": 8,
    "int": 4, "unsigned": 4, "unsigned int": 4, "uint": 4, "int32_t": 4, "uint32_t": 4, "float": 4, "wchar_t": 4,
    "int2": 8, "uint2": 8, "float2": 8, "int3": 12, "uint3": 12, "float3": 12, "int4": 16, "uint4": 16, "float4": 16,
    "dim3": 12, "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8,
    "size_t": 8, "ptrdiff_t": 8, "intptr_t": 8, "uintptr_t": 8, "double": 8, "cuComplex": 8, "cuFloatComplex": 8,
    "long2": 16, "ulong2": 16, "longlong2": 16, "ulonglong2": 16, "double2": 16, "double3": 24, "double4": 32,
    "cuDoubleComplex": 16, "ulong": 8, "longlong": 8, "ulonglong": 8,
}  # fmt: skip
"""Sizes in bytes on the 64-bit Linux ABI that CUDA uses, by canonical name (`canonical_type`)."""


class ExpressionError(ValueError):
    """The text is not an integer expression over the given names; the message names the bad part."""


_QUALIFIERS = ("const", "volatile", "struct", "typename")
_WORDS = {"signed", "unsigned", "short", "long", "int", "char", "double", "float", "bool"}
_NUMBER = re.compile(
    r"(?P<digits>0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)(?P<suffix>(?:[uU](?:ll|LL|[lLzZ])?|(?:ll|LL|[lLzZ])[uU]?)?|[KkMG])$"
)
_SCALE = {"K": 2**10, "k": 2**10, "M": 2**20, "G": 2**30}
_FUNCTIONS = {"cdiv": 2, "min": 2, "max": 2, "ceil_div": 2, "div_up": 2, "divup": 2}
_BINARY = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
           ("*", "/", "%")]  # fmt: skip
_LEVEL = {operator: level for level, operators in enumerate(_BINARY) for operator in operators}


def canonical_type(words: str) -> str:
    """The one name of a type: `unsigned` -> `unsigned int`, `long int` -> `long`, `std::size_t` -> `size_t`."""
    parts = [part for part in words.split() if part not in _QUALIFIERS]
    plain = " ".join(parts).removeprefix("std::")
    if not set(plain.split()) <= _WORDS or not parts:
        return plain if plain in SIZEOF else " ".join(parts)
    parts = plain.split()
    unsigned = "unsigned" in parts
    longs = parts.count("long")
    if "double" in parts or "float" in parts or "bool" in parts:
        return " ".join(parts)
    if "char" in parts:
        return "unsigned char" if unsigned else "signed char" if "signed" in parts else "char"
    base = "short" if "short" in parts else "long long" if longs > 1 else "long" if longs else "int"
    return f"unsigned {base}" if unsigned else base


def evaluate(expression: str, names: Mapping[str, int] | None = None) -> int:
    """The value of a C integer expression.

    Raises:
        ExpressionError: for anything that is not one, an unknown name, a division by zero, an absurd value.

    """
    parser = _Parser(expression, names or {})
    value = parser.ternary()
    parser.expect_end()
    return value


@lru_cache(maxsize=4096)
def names_in(expression: str) -> frozenset[str]:
    """Names that the expression needs values for; types in `sizeof`, casts and the known functions are none."""
    collected: set[str] = set()
    parser = _Parser(expression, {}, collected)
    try:
        parser.ternary()
        parser.expect_end()
    except ExpressionError:
        # Of a text that is no expression, every identifier may matter to whoever reports it.
        collected |= {expression[t.start : t.end] for t in code(expression) if t.kind is Kind.NAME}
    return frozenset(collected)


class _Parser:
    """Precedence climbing over the tokens. With `collected`, names are gathered and count as 1."""

    def __init__(self, text: str, names: Mapping[str, int], collected: set[str] | None = None) -> None:
        self.text, self.names, self.collected = text, names, collected
        self.tokens = code(text) if len(text) <= 20 * MAX_TOKENS else []
        if len(text) > 20 * MAX_TOKENS or len(self.tokens) > MAX_TOKENS:
            raise ExpressionError(f"the expression is longer than {MAX_TOKENS} tokens")
        self.at = 0
        self.depth = 0
        self.dead = 0
        """Positive while inside an operand that C does not evaluate: `0 && 1/0` is 0."""

    def peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.piece(self.tokens[index]) if index < len(self.tokens) else ""

    def piece(self, token: Token) -> str:
        return self.text[token.start : token.end]

    def take(self) -> str:
        piece = self.peek()
        self.at += 1
        return piece

    def expect(self, piece: str) -> None:
        if self.peek() != piece:
            found = f"`{self.peek()}`" if self.peek() else "the end"
            raise ExpressionError(f"expected `{piece}` but found {found} in `{_short(self.text)}`")
        self.at += 1

    def expect_end(self) -> None:
        if self.at < len(self.tokens):
            raise ExpressionError(f"unexpected `{self.peek()}` in `{_short(self.text)}`")

    def nest(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"`{_short(self.text)}` is nested deeper than {MAX_DEPTH} levels")

    def ternary(self) -> int:
        self.nest()
        condition = self.binary(0)
        if self.peek() == "?":
            self.take()
            self.dead += not condition
            then = self.ternary()
            self.dead -= not condition
            self.expect(":")
            self.dead += bool(condition)
            otherwise = self.ternary()
            self.dead -= bool(condition)
            condition = then if condition else otherwise
        self.depth -= 1
        return condition

    def binary(self, level: int) -> int:
        left = self.unary()
        return self.climb(left, level)

    def climb(self, left: int, level: int) -> int:
        while (found := _LEVEL.get(self.peek())) is not None and found >= level:
            operator = self.take()
            skip = (operator == "&&" and not left) or (operator == "||" and bool(left))
            self.dead += skip
            right = self.unary()
            while (following := _LEVEL.get(self.peek())) is not None and following > found:
                right = self.climb(right, following)
            self.dead -= skip
            left = self.apply(operator, left, right)
        return left

    def apply(self, operator: str, left: int, right: int) -> int:
        if self.dead or self.collected is not None:
            # Nobody sees the value of an operand that is not evaluated; it must only not fail.
            if operator in ("&&", "||"):
                return int(bool(left) and bool(right)) if operator == "&&" else int(bool(left) or bool(right))
            return 1
        match operator:
            case "+":
                value = left + right
            case "-":
                value = left - right
            case "*":
                value = left * right
            case "/" | "%":
                if right == 0:
                    raise ExpressionError(f"division by zero in `{_short(self.text)}`")
                quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
                value = quotient if operator == "/" else left - quotient * right
            case "<<" | ">>":
                if not 0 <= right < MAX_BITS:
                    raise ExpressionError(f"shift by {_number(right)} in `{_short(self.text)}`")
                value = left << right if operator == "<<" else left >> right
            case "&":
                value = left & right
            case "|":
                value = left | right
            case "^":
                value = left ^ right
            case "&&":
                value = int(bool(left) and bool(right))
            case "||":
                value = int(bool(left) or bool(right))
            case "==":
                value = int(left == right)
            case "!=":
                value = int(left != right)
            case "<":
                value = int(left < right)
            case ">":
                value = int(left > right)
            case "<=":
                value = int(left <= right)
            case _:
                value = int(left >= right)
        return self.guard(value)

    def guard(self, value: int) -> int:
        if value.bit_length() > MAX_BITS:
            raise ExpressionError(f"a value in `{_short(self.text)}` has more than {MAX_BITS} bits")
        return value

    def unary(self) -> int:
        self.nest()
        piece = self.peek()
        if piece in ("-", "+", "~", "!"):
            self.take()
            operand = self.unary()
            value = {"-": -operand, "+": operand, "~": ~operand, "!": int(not operand)}[piece]
        elif piece == "(" and (end := self.type_end(self.at + 1)) is not None and self.piece(self.tokens[end]) == ")":
            self.at = end + 1
            value = self.unary()
        else:
            value = self.primary()
        self.depth -= 1
        return value

    def type_end(self, index: int) -> int | None:
        """The token after a type name that starts at `index`, or None if there is no known type."""
        words: list[str] = []
        while index < len(self.tokens) and (
            self.tokens[index].kind is Kind.NAME or (words and self.piece(self.tokens[index]) == "::")
        ):
            words.append(self.piece(self.tokens[index]))
            index += 1
        pointer = index < len(self.tokens) and self.piece(self.tokens[index]) == "*" and bool(words)
        known = canonical_type(_spell(words)) in SIZEOF and not (len(words) == 1 and words[0] in self.names)
        if not known and not (pointer and self._closes(index)):
            return None
        while index < len(self.tokens) and self.piece(self.tokens[index]) in ("*", "const"):
            index += 1
        return index if index < len(self.tokens) else None

    def _closes(self, index: int) -> bool:
        while index < len(self.tokens) and self.piece(self.tokens[index]) == "*":
            index += 1
        return index < len(self.tokens) and self.piece(self.tokens[index]) == ")"

    def primary(self) -> int:
        if self.at >= len(self.tokens):
            raise ExpressionError(
                f"`{_short(self.text)}` ends too early" if self.text.strip() else "the expression is empty"
            )
        token = self.tokens[self.at]
        piece = self.take()
        if piece == "(":
            value = self.ternary()
            self.expect(")")
            return value
        if token.kind is Kind.NUMBER:
            return self.guard(_literal(piece, self.text))
        if token.kind is Kind.CHARACTER and len(piece) == 3:
            return ord(piece[1])
        if piece == "sizeof":
            return self.sizeof()
        if piece in ("static_cast", "int", "unsigned", "size_t", "long", "dim3") and self.peek() in ("<", "("):
            return self.cast(piece)
        if token.kind is Kind.NAME:
            while self.peek() == "::" and self.at + 1 < len(self.tokens):
                piece += self.take() + self.take()
            if self.peek() == "(" or piece in ("std::min", "std::max"):
                return self.call(piece)
            return self.lookup(piece)
        raise ExpressionError(f"unexpected `{piece}` in `{_short(self.text)}`")

    def lookup(self, name: str) -> int:
        if self.collected is not None:
            self.collected.add(name)
            return 1
        if name in ("true", "false") and name not in self.names:
            return int(name == "true")
        if name not in self.names:
            raise ExpressionError(f"`{name}` has no known value")
        return self.guard(int(self.names[name]))

    def sizeof(self) -> int:
        self.expect("(")
        end = self.type_end(self.at)
        if end is None or self.piece(self.tokens[end]) != ")":
            inner = self.peek()
            raise ExpressionError(f"the size of `{inner}` is not known")
        words = [self.piece(token) for token in self.tokens[self.at : end]]
        self.at = end + 1
        if "*" in words:
            return 8
        return SIZEOF[canonical_type(_spell(words))]

    def cast(self, piece: str) -> int:
        if piece == "static_cast":
            self.expect("<")
            end = self.type_end(self.at)
            if end is None:
                raise ExpressionError(f"unknown type in `{_short(self.text)}`")
            self.at = end
            self.expect(">")
        self.expect("(")
        value = self.ternary()
        self.expect(")")
        return value

    def call(self, name: str) -> int:
        plain = name.removeprefix("std::")
        if self.peek() == "<":
            while self.at < len(self.tokens) and self.take() != ">":
                pass
        if plain not in _FUNCTIONS:
            raise ExpressionError(f"unknown function `{name}`: cdiv, min and max are known")
        self.expect("(")
        arguments = [self.ternary()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.ternary())
        self.expect(")")
        if len(arguments) != 2 and not (plain in ("min", "max") and len(arguments) > 1):
            raise ExpressionError(f"`{name}` takes 2 arguments, not {len(arguments)}")
        if self.dead or self.collected is not None:
            return 1
        if plain == "min":
            return min(arguments)
        if plain == "max":
            return max(arguments)
        if arguments[1] == 0:
            raise ExpressionError(f"division by zero in `{_short(self.text)}`")
        return -(-arguments[0] // arguments[1])


def _spell(words: list[str]) -> str:
    return " ".join(word for word in words if word != "*").replace(" :: ", "::")


def _literal(piece: str, text: str) -> int:
    match = _NUMBER.match(piece.replace("'", ""))
    if match is None:
        kind = "a floating-point number" if re.match(r"[0-9.]+(?:[eE][-+]?[0-9]+)?[fF]?$", piece) else "no number"
        raise ExpressionError(f"`{piece}` in `{_short(text)}` is {kind}; an integer is needed")
    digits = match["digits"]
    if len(digits) > 80:
        raise ExpressionError(f"a value in `{_short(text)}` has more than {MAX_BITS} bits")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    try:
        value = int(digits, 8) if octal else int(digits, 0)
    except ValueError:
        raise ExpressionError(f"`{piece}` is not an octal number") from None
    return value * _SCALE.get(match["suffix"], 1)


def _number(value: int) -> str:
    return str(value) if value.bit_length() <= 64 else "a giant number"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
