"""What expressions of a body stand for: polynomials over sizes and indices, and places in the memory of parameters."""

import re
from collections.abc import Callable, Iterable, Mapping

from attrs import Factory, define, evolve, frozen
from tree_sitter import Node

from dice_lsp.records import Parameter
from dice_lsp.source.accesses import (
    BYTE_RANGE,
    INTEGERS,
    Access,
    Guard,
    IndexUse,
    Range,
    SharedArray,
    default_range,
    extreme,
    never_negative,
    varies,
)
from dice_lsp.source.body_tree import arguments, function_name, template_arguments
from dice_lsp.source.device_code import Callee, Context, resolved_type, size_of
from dice_lsp.source.expressions import SIZEOF, ExpressionError, evaluate
from dice_lsp.source.polynomials import ONE, ZERO, Polynomial, ceiling, floor, name, number
from dice_lsp.source.syntax import named, spell, walk

LOADS = {"__ldg", "__ldcg", "__ldca", "__ldcs", "__ldcv", "__ldlu"}

AXES = ("x", "y", "z")

CEILINGS = {"ceil_div", "div_ceil", "ceildiv", "cdiv", "div_up", "divup", "idivup", "updiv", "divide_up", "divceil"}

CASTS = ("static_cast", "reinterpret_cast", "const_cast")

WIDE = INTEGERS - {"char", "unsigned char", "signed char", "uint8_t", "int8_t", "short", "unsigned short", "int16_t",
                    "uint16_t", "bool"}  # fmt: skip

_GROUP_LOCAL = re.compile(
    r"\b(?:const\s+)?(?:cg|cooperative_groups)\s*::\s*(?:thread_block_tile\s*<[^<>;=]*>|thread_block|grid_group|thread_group"
    r"|coalesced_group)\s+(?:const\s+)?(\w+)\s*(=|\()"
)

_MAX_GUARDS = 40
"""Guards over several variables that are remembered at one place."""

_MAX_DEPTH = 8
"""Functions entered one within the other."""

_MAX_STEPS = 60_000
"""Statements and expressions read of one body, with those of the functions that it calls."""

Fact = tuple[Polynomial, str, Polynomial]
"""`varying part`, `<` or `>=` or `==`, `bound without variables`."""


@frozen
class Place:
    """Where a pointer points: `buffer[offset]`."""

    buffer: str
    offset: Polynomial | None
    """In elements of the buffer; None when it is not understood."""
    unit: int = 1
    """Elements of the buffer that the pointee is, 4 for a `float4*` into floats; 0 when that is not known."""
    recast: bool = False
    """The pointee is not the buffer's own type."""
    rows: tuple[Polynomial, ...] = ()
    """Of an array of arrays: elements of a row, of a row's row and so on; the place is then no pointer yet."""


@frozen
class Group:
    """A cooperative group that a local stands for."""

    kind: str
    """`block`, `tile` or `grid`."""
    size: int | None = None
    """Threads of a tile."""


@define
class Scope:
    values: dict[str, Polynomial | None] = Factory(dict)
    places: dict[str, Place] = Factory(dict)
    groups: dict[str, Group] = Factory(dict)
    integers: set[str] = Factory(set)
    """Locals that may hold any integer that an index is."""
    tests: dict[str, tuple[tuple[list["Fact"], bool], tuple[list["Fact"], bool]]] = Factory(dict)
    """Local -> what follows when it is true, and when it is false."""
    ranges: dict[str, Range] = Factory(dict)
    """What the guards around leave of a variable's range."""
    guards: tuple[Guard, ...] = ()
    certain: bool = True
    declared: set[str] = Factory(set)
    """Names that end with this scope."""

    def fork(self) -> "Scope":
        return Scope(
            dict(self.values), dict(self.places), dict(self.groups), set(self.integers), dict(self.tests),
            dict(self.ranges), self.guards, self.certain,
        )  # fmt: skip


class Values:
    """Reads expressions of one body in the scope of the place where they stand; `source.body` moves that scope along."""

    def __init__(
        self, parameters: tuple[Parameter, ...], constants: Mapping[str, int], is_kernel: bool, context: Context
    ) -> None:
        self.pointers = {p.name: p for p in parameters if p.pointer}
        self.scalars = {p.name: p for p in parameters if not p.pointer}
        self.constants = constants
        self.is_kernel = is_kernel
        self.context = context
        self.types = dict(context.types)
        self.members = dict(context.members)
        self.struct_sizes = dict(context.sizes)
        self.callees: dict[str, list[Callee]] = {}
        for callee in context.callees:
            self.callees.setdefault(callee.name, []).append(callee)
        self.accesses: list[Access] = []
        self.unsure: dict[str, str] = {}
        self.gathers: dict[str, str] = {}
        self.index_uses: list[IndexUse] = []
        self.indices: set[str] = set()
        self.axes: dict[str, Range] = {}
        self.block_indices: dict[str, Range] = {}
        self.thread_axes: set[str] = set()
        self.thread_bounds: dict[str, Range] = {}
        self.divided_names: set[str] = set()
        self.strided: set[str] = set()
        self.forced: dict[str, int] = {}
        self.quiet = False
        """Inside an expression whose thread indices have been noted."""
        self.shared: dict[str, SharedArray] = {}
        self.elements = {p.name: p.element for p in self.pointers.values()}
        """Buffer -> its element type."""
        self.dynamic_shared = self.whole_grid = self.flat = False
        self.steps: dict[str, set[int]] = {}
        self.stepped: dict[str, int] = {}
        """Variable of a loop over several elements a turn -> how far a turn goes, as a factor of the variable."""
        self.scope = Scope(
            values={p.name: name(p.name) if p.element in INTEGERS else None for p in self.scalars.values()},
            places={p: Place(p, ZERO) for p in self.pointers},
            integers={p.name for p in self.scalars.values() if p.element in WIDE},
        )
        self.symbols: dict[str, Range] = {}
        """Variables that are made up here, with the ranges that they have by what they are."""
        self.bases: dict[str, frozenset[str]] = {}
        """Variable made up here -> the built-in indices that it follows from."""
        self.quotients: dict[tuple[str, Polynomial, Polynomial, Polynomial | None, bool], Polynomial] = {}
        self.vectors: dict[str, str] = {}
        """Local that is a vector of integers -> the buffer that it was loaded from."""
        self.loads: dict[str, str] = {}
        """Variable -> the integer buffer that it was loaded from."""
        self.opaque: set[str] = set()
        """Locals of the function being read that change in ways that are not followed."""
        self.entered: list[str] = []
        self.returned: list[Polynomial | Place | None] = []
        self.results: dict[int, Polynomial | Place | None] = {}
        """Call -> what it returned, until that is asked for."""
        self.fragments: dict[str, tuple[str, int, int, str]] = {}
        """`wmma` fragment -> its use, rows, columns and layout."""
        self.many_dimensions = False
        self.fresh = 0
        self.left = _MAX_STEPS
        self.loaded: dict[str, tuple[set[str], bool]] = {}
        """Local -> the integer buffers that its value comes from, and whether it is one loaded value, unchanged."""

    def expression(self, node: Node | None) -> None:
        """Record every access in an expression."""
        raise NotImplementedError

    def enter(self, node: Node, target: Callee, actual: list[Node]) -> None:
        """Read a function of the text with the arguments of one call; what it returns is left in `results`."""
        raise NotImplementedError

    # Scopes

    def forked(self, work: Callable[[], None]) -> Scope:
        """The scope after some work in a scope of its own; the present one stays as it is."""
        outer = self.scope
        inner = self.scope = outer.fork()
        work()
        self.scope = outer
        return inner

    def within(self, facts: Iterable[Fact], certain: bool, work: Callable[[], None]) -> Scope:
        def under() -> None:
            self.apply(facts)
            self.scope.certain = self.scope.certain and certain
            work()

        return self.forked(under)

    def take(self, inner: Scope) -> None:
        """Go on with the values that an inner scope ends with."""
        self.meet(inner, inner)

    def meet(self, first: Scope, second: Scope) -> None:
        """Go on with what two scopes agree on."""
        for label in self.scope.values.keys() | self.scope.places.keys():
            ways = [
                (s.values.get(label), s.places.get(label))
                if label not in s.declared
                else (self.scope.values.get(label), self.scope.places.get(label))
                for s in (first, second)
            ]
            if ways[0] == ways[1]:
                value, place = ways[0]
            else:
                value = self.hull(ways[0][0], ways[1][0])
                place = self.common(ways[0][1], ways[1][1])
            if place is not None:
                self.scope.places[label] = place
            elif label in self.scope.places:
                del self.scope.places[label]
            self.scope.values[label] = value

    def hull(self, first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
        """A variable that may have either value."""
        if first is None or second is None:
            return None
        lows = [self.smallest(p) for p in (first, second)]
        highs = [self.largest(p) for p in (first, second)]
        if any(low is None or not low.never_negative for low in lows):
            return None
        high = greater(highs[0], highs[1])
        return None if high is None else self.symbol(Range(ZERO, high + ONE, False, high + ONE), of=(first, second))

    def common(self, first: Place | None, second: Place | None) -> Place | None:
        places = [place for place in (first, second) if place is not None]
        if len(places) == 2 and places[0].buffer == places[1].buffer and places[0].unit == places[1].unit:
            return evolve(places[0], offset=None)
        for place in places:
            self.unsure.setdefault(place.buffer, "one of several pointers is used")
        return None

    def forget(self, labels: Iterable[str]) -> None:
        for label in labels:
            self.scope.values[label] = None
            self.scope.tests.pop(label, None)
            if (place := self.scope.places.get(label)) is not None:
                self.scope.places[label] = evolve(place, offset=None)

    def declare(self, label: str) -> None:
        self.scope.declared.add(label)
        self.scope.places.pop(label, None)
        self.scope.places.pop("&" + label, None)
        self.scope.groups.pop(label, None)
        self.scope.tests.pop(label, None)
        self.scope.integers.discard(label)
        self.scope.values[label] = None

    # Conditions

    def unwrapped(self, node: Node | None) -> Node | None:
        while node is not None and node.type in ("condition_clause", "parenthesized_expression"):
            inner = named(node)
            node = inner[0] if len(inner) == 1 else None
        return node

    def facts(self, test: Node | None, *, negated: bool) -> tuple[list[Fact], bool]:
        """Bounds that hold when a condition does (or, `negated`, does not), and whether they are all that it says."""
        test = self.unwrapped(test)
        if test is None:
            return [], False
        if test.type == "unary_expression" and spell(test.child_by_field_name("operator")) == "!":
            return self.facts(test.child_by_field_name("argument"), negated=not negated)
        if test.type == "identifier" and (meaning := self.scope.tests.get(spell(test))) is not None:
            return meaning[negated]
        if test.type == "identifier" and spell(test) in self.scope.places:
            # A launch from here passes memory for every pointer.
            return [], not negated
        if test.type == "unary_expression" and self.place(test.child_by_field_name("argument")) is not None:
            return [], negated
        if test.type != "binary_expression":
            return [], False
        if (present := self.compared(test)) is not None:
            return [], present != negated
        operator = spell(test.child_by_field_name("operator"))
        left, right = test.child_by_field_name("left"), test.child_by_field_name("right")
        if operator == ("||" if negated else "&&"):
            first, second = self.facts(left, negated=negated), self.facts(right, negated=negated)
            return first[0] + second[0], first[1] and second[1]
        if left is None or right is None:
            return [], False
        flip = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
        equal = operator == ("!=" if negated else "==")
        if not equal and operator not in flip:
            return [], False
        a, b = self.polynomial(left), self.polynomial(right)
        if a is None or b is None:
            return [], False
        if equal:
            operator = "=="
        elif negated:
            operator = flip[operator]
        difference = a - b
        # Everything as `difference < 0` or `difference >= 0`.
        if operator in (">", "<="):
            difference, operator = (b - a), ("<" if operator == ">" else ">=")
        part = Polynomial({m: c for m, c in difference.terms.items() if any(varies(factor) for factor in m)})
        if not part.terms:
            return [], False
        bound = part - difference
        data = any(label in self.loads for label in part.names)
        alone = len(part.terms) == 1 and len(next(iter(part.terms))) == 1
        return [(part, operator, bound)], not data and (alone or operator != "==")

    def apply(self, facts: Iterable[Fact]) -> None:
        for part, operator, bound in facts:
            ((monomial, scale), *others) = part.terms.items()
            if others or len(monomial) != 1:
                self.guard(part, operator, bound)
                continue
            if scale < 0 and operator != "==":
                # -c * v < b is c * v >= 1 - b.
                scale, bound = -scale, ONE - bound
                operator = ">=" if operator == "<" else "<"
            if abs(scale) != 1:
                self.guard(number(scale) * name(monomial[0]), operator, bound)
            by = number(abs(scale))
            if operator == "==":
                exact = (bound if scale > 0 else -bound).divided_by(by)
                if exact is not None:
                    self.narrow(monomial[0], operator, exact, exact)
                continue
            self.narrow(monomial[0], operator, ceiling(bound, by), ceiling(without_rest(bound), by))

    def guard(self, part: Polynomial, operator: str, bound: Polynomial) -> None:
        if len(self.scope.guards) >= _MAX_GUARDS:
            return
        if operator == "==":
            self.scope.guards += (Guard(part, "<", bound + ONE), Guard(part, ">=", bound))
        else:
            # Both ways to say it: what is at least something is less than something when it is negated.
            turned = Guard(-part, "<" if operator == ">=" else ">=", ONE - bound)
            self.scope.guards += (Guard(part, operator, bound), turned)
        if len(part.terms) > 1:
            if operator == "<":
                self.implied(part, bound)
            elif operator == ">=":
                self.implied(-part, ONE - bound)
            # Which of all places are left is not worked out.
            self.scope.certain = False

    def implied(self, part: Polynomial, bound: Polynomial) -> None:
        """What `i + 8 * j < n` says of `i` alone, given that `j` is never negative."""
        for monomial, scale in part.terms.items():
            if len(monomial) != 1 or scale < 1 or not monomial[0].startswith(("gid.", "blockIdx.")):
                continue
            rest = part - Polynomial({monomial: scale})
            low = self.smallest(rest)
            if low is not None and monomial[0] not in rest.names:
                by = number(scale)
                high = bound - low
                self.narrow(monomial[0], "<", ceiling(high, by), ceiling(without_rest(high), by))

    def narrow(self, variable: str, operator: str, bound: Polynomial, relaxed: Polynomial) -> None:
        """What a guard leaves of the range of one variable."""
        if operator == "==":
            if bound == ZERO:
                # One thread does it for all: where its index does not matter, nothing is left out.
                self.scope.ranges[variable] = Range(ZERO, ONE, True, ONE)
            elif bound.never_negative:
                self.scope.ranges[variable] = Range(bound, bound + ONE, False, bound + ONE)
            return
        old = self.range_of(variable)
        if operator == "<":
            better = old.high is None or (old.high - bound).never_negative
            relaxed = old.relaxed if old.relaxed is not None and not better else relaxed
            new = evolve(old, high=bound if better else old.high, relaxed=relaxed)
        else:
            better = old.low is None or (bound - old.low).never_negative
            zero = bound.constant is not None and bound.constant <= 0 and old.low == ZERO
            new = evolve(
                old, low=bound if better and not zero else old.low, full=old.full and (zero or old.low == bound)
            )
        sized = any(label.startswith(("blockDim.", "gridDim.")) for label in bound.identifiers)
        if variable.startswith("threadIdx."):
            # How many values it takes is the block's affair.
            new = evolve(new, full=False)
            if not sized:
                self.note(self.thread_bounds, variable, new)
        self.scope.ranges[variable] = new
        if variable.startswith("gid.") and self.scope.certain and not sized:
            self.note(self.axes, variable, new)
        elif variable.startswith("blockIdx.") and not sized:
            self.note(self.block_indices, variable, new)

    def note(self, table: dict[str, Range], variable: str, new: Range) -> None:
        old = table.get(variable)
        if old is None or old.high is None or (new.high is not None and (new.high - old.high).never_negative):
            table[variable] = new

    def compared(self, node: Node) -> bool | None:
        """Whether `p != nullptr` and the like asks if a pointer is there; None where it is another question."""
        operator = spell(node.child_by_field_name("operator"))
        sides = [self.unwrapped(node.child_by_field_name(side)) for side in ("left", "right")]
        nulls = [side is not None and spell(side) in ("nullptr", "NULL", "0") for side in sides]
        places = [self.place(side) is not None for side in sides]
        if operator not in ("==", "!=") or sum(nulls) != 1 or sum(places) != 1:
            return None
        return operator == "!="

    # Places

    def place(self, node: Node | None) -> Place | None:
        """Where a pointer-valued expression points, if that is in a parameter's memory: `&x[i]`, `x + i`, `x`."""
        node = self.unwrapped(node) or node
        if node is None:
            return None
        match node.type:
            case "identifier":
                return self.scope.places.get(spell(node))
            case "pointer_expression" if spell(node).startswith("&"):
                return self.element(node.child_by_field_name("argument"))
            case "binary_expression":
                operator = spell(node.child_by_field_name("operator"))
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                base, by, sign = self.place(left), right, ONE if operator == "+" else -ONE
                if base is None and operator == "+":
                    base, by = self.place(right), left
                if base is None or operator not in ("+", "-") or self.place(by) is not None:
                    return None
                step = self.polynomial(by)
                return self.moved(base, None if step is None else sign * step)
            case "cast_expression":
                return self.cast(node.child_by_field_name("value"), spell(node.child_by_field_name("type")))
            case "call_expression":
                return self.pointer_call(node)
            case "subscript_expression":
                base = self.place(node.child_by_field_name("argument"))
                return self.subscripted(base, node) if base is not None and base.rows else None
            case _:
                return None

    def subscripted(self, base: Place, node: Node) -> Place | None:
        indices = node.child_by_field_name("indices")
        inside = named(indices) if indices is not None else []
        if len(inside) != 1:
            return None
        index = self.polynomial(inside[0])
        if not base.rows:
            return self.moved(base, index)
        row = self.moved(base, None if index is None else index * base.rows[0])
        return evolve(row, rows=base.rows[1:])

    def moved(self, place: Place, step: Polynomial | None) -> Place:
        """The place some steps of its pointer further on."""
        if step is None or place.offset is None or place.unit == 0:
            return evolve(place, offset=None)
        return evolve(place, offset=place.offset + step * number(place.unit))

    def pointer_call(self, node: Node) -> Place | None:
        function = function_name(node.child_by_field_name("function"))
        actual = arguments(node)
        if function in CASTS and len(actual) == 1:
            texts = template_arguments(node)
            return self.cast(actual[0], texts[0]) if texts else None
        if function in ("assume_aligned", "__builtin_assume_aligned", "launder") and actual:
            return self.place(actual[0])
        return None

    def cast(self, node: Node | None, wanted: str) -> Place | None:
        place = self.place(node)
        if place is None or "*" not in wanted or wanted.count("*") > 1:
            return None
        return self.recast(place, wanted.replace("*", " "))

    def recast(self, place: Place, wanted: str = "", bytes_: int | None = None) -> Place:
        words = " ".join(w for w in wanted.split() if w not in ("const", "volatile", "__restrict__", "__restrict"))
        own_type = resolved_type(self.elements[place.buffer], self.types)
        if words and resolved_type(words, self.types) == own_type:
            return evolve(place, unit=1, recast=False, rows=())
        if words == "void":
            return evolve(place, unit=0, recast=True)
        place = evolve(place, rows=())
        own = SIZEOF.get(own_type) or self.struct_sizes.get(own_type)
        width = bytes_ or size_of(words, self.types) or self.struct_sizes.get(words)
        unit = width // own if own and width and width % own == 0 else 0
        return evolve(place, unit=unit, recast=True)

    def element(self, node: Node | None) -> Place | None:
        """A parameter's element as a left-hand side: `x[i]`, `*x`, `*(x + i)`, a reference to one."""
        node = self.unwrapped(node) or node
        if node is None:
            return None
        match node.type:
            case "subscript_expression":
                base = self.place(node.child_by_field_name("argument"))
                return self.subscripted(base, node) if base is not None and not base.rows else None
            case "pointer_expression" if spell(node).startswith("*"):
                place = self.place(node.child_by_field_name("argument"))
                return place if place is None or not place.rows else None
            case "identifier":
                return self.scope.places.get("&" + spell(node))
            case "field_expression":
                argument = node.child_by_field_name("argument")
                if "->" in (spell(child) for child in node.children):
                    return self.place(argument)
                return self.element(argument)
            case _:
                return None

    def visit_place(self, node: Node | None) -> None:
        """Record the accesses within the subscripts of a place."""
        node = self.unwrapped(node) or node
        if node is None or node.type == "identifier":
            return
        if node.type in ("subscript_expression", "field_expression", "pointer_expression"):
            self.visit_place(node.child_by_field_name("argument"))
            indices = node.child_by_field_name("indices")
            for index in named(indices) if indices is not None else []:
                self.expression(index)
        elif node.type == "cast_expression":
            self.visit_place(node.child_by_field_name("value"))
        elif node.type == "call_expression":
            for argument in arguments(node):
                if self.place(argument) is not None:
                    self.visit_place(argument)
                else:
                    self.expression(argument)
        elif node.type == "binary_expression":
            for side in (node.child_by_field_name("left"), node.child_by_field_name("right")):
                if self.place(side) is not None:
                    self.visit_place(side)
                else:
                    self.expression(side)
        else:
            self.expression(node)

    def memory(self, node: Node | None, *, loads: bool, stores: bool) -> bool:
        """Record an access if `node` is an element of a parameter or a member of one."""
        node = self.unwrapped(node) or node
        if node is None or (node.type == "identifier" and "&" + spell(node) not in self.scope.places):
            return False
        if node.type == "pointer_expression" and spell(node).startswith("&"):
            return False
        place = self.element(node)
        if place is None:
            return False
        # Only a part of the element is written, so it also keeps what it held.
        self.record(place, loads=loads or (stores and node.type == "field_expression"), stores=stores, index=node)
        self.visit_place(node)
        return True

    def record(
        self, place: Place, *, loads: bool, stores: bool, atomic: str | None = None, index: Node | None = None
    ) -> None:
        subscript = place.offset if place.unit > 0 else None
        if subscript is not None and place.unit > 1:
            width = number(place.unit)
            subscript = subscript + self.symbol(Range(ZERO, width, True, width), "lane")
            self.vector_sizes(place.unit)
        if subscript is not None:
            subscript = self.with_global_indices(subscript)
        if subscript is not None and subscript.too_large:
            subscript = None
        if subscript is None and index is not None and place.buffer in self.pointers:
            self.gather(place.buffer, index)
        names = subscript.names if subscript is not None else frozenset()
        ranges = {n: self.range_of(n) for n in names if varies(n)}
        for label in names:
            if label in self.loads and subscript is not None and place.buffer in self.pointers:
                if stores and atomic is None:
                    # Where two threads write is up to the data: a permutation, or a race.
                    self.indices.add(self.loads[label])
                self.gathered(place.buffer, subscript, label, ranges)
        for label in self.bases_of(subscript):
            if label.startswith("threadIdx."):
                self.thread_axes.add(label[-1])
            elif label.startswith("gid.") and place.buffer in self.pointers:
                self.axes.setdefault(label, self.range_of(label))
            elif label.startswith("blockIdx.") and place.buffer in self.pointers:
                self.block_indices.setdefault(label, self.range_of(label))
        own = frozenset(ranges)
        guards = tuple(guard for guard in self.scope.guards if guard.part.names & own)
        for guard in guards:
            ranges |= {n: self.range_of(n) for n in guard.part.names if varies(n) and n not in ranges}
        self.accesses.append(Access(place.buffer, stores, loads, atomic, subscript, ranges, self.scope.certain, guards))

    def vector_sizes(self, width: int) -> None:
        """Sizes that a vector access relies on are no free sizes: it has no rest that is done one by one."""
        for guard in self.scope.guards:
            if guard.operator == "<" and any(abs(c) >= width for c in guard.part.terms.values()):
                self.divided_names |= guard.bound.identifiers & self.scalars.keys()
        for label, range_ in self.scope.ranges.items():
            if range_.high is not None and varies(label):
                for part in range_.high.names:
                    if part.startswith(("cdiv(", "(")):
                        self.divided_names |= Polynomial({(part,): 1}).identifiers & self.scalars.keys()

    def gathered(self, buffer: str, subscript: Polynomial, label: str, ranges: Mapping[str, Range]) -> None:
        """An access whose place depends on a loaded integer: what that integer may be follows from the buffer's size."""
        if ranges[label].high is not None and ranges[label].low is not None:
            return
        source = self.loads[label]
        if subscript == name(label):
            if self.gathers.setdefault(source, buffer) != buffer:
                self.indices.add(source)
            return
        with_it = {m: c for m, c in subscript.terms.items() if label in m}
        factor = Polynomial({tuple(n for n in m if n != label): c for m, c in with_it.items()})
        rest = subscript - Polynomial(with_it)
        if (
            any(m.count(label) > 1 for m in with_it)
            or any(varies(n) for n in factor.names)
            or any(n in self.loads for n in rest.names)
        ):
            self.indices.add(source)
            return
        self.index_uses.append(IndexUse(source, buffer, factor, rest, ranges))

    def range_of(self, label: str) -> Range:
        known = self.scope.ranges.get(label) or self.symbols.get(label)
        return known if known is not None else default_range(label)

    def gather(self, buffer: str, index: Node) -> None:
        """A subscript that is not understood: note whose values it comes from."""
        for node in walk(index):
            if node.type != "subscript_argument_list" and not (
                node.id == index.id and node.type == "pointer_expression"
            ):
                continue
            for label in self.sources(node)[0]:
                self.indices.add(label)

    def sources(self, node: Node) -> tuple[set[str], bool]:
        """Integer buffers whose values an expression uses, and whether it is one such value, unchanged."""
        found: set[str] = set()
        for inner in walk(node):
            if inner.type == "identifier":
                found |= self.loaded.get(spell(inner), (set(), False))[0]
            elif inner.type in ("subscript_expression", "pointer_expression", "call_expression"):
                element = self.loaded_element(inner)
                if (
                    element is not None
                    and element.buffer in self.pointers
                    and self.elements[element.buffer] in INTEGERS
                ):
                    found.add(element.buffer)
        if node.type == "identifier":
            return self.loaded.get(spell(node), (set(), False))
        return found, len(found) == 1 and self.loaded_element(node) is not None

    def loaded_element(self, node: Node) -> Place | None:
        """The element that `x[i]`, `*x` or `__ldg(&x[i])` loads."""
        if node.type == "call_expression":
            actual = arguments(node)
            if function_name(node.child_by_field_name("function")) not in LOADS or not actual:
                return None
            return self.place(actual[0])
        if node.type == "subscript_expression" or (node.type == "pointer_expression" and spell(node).startswith("*")):
            return self.element(node)
        return None

    # Polynomials

    def callee(self, node: Node | None, function: str, actual: list[Node]) -> Callee | None:
        """The function of the text that a call enters, if it is certain which one."""
        if node is None or node.type not in ("identifier", "template_function", "qualified_identifier"):
            return None
        if function in self.entered or len(self.entered) >= _MAX_DEPTH:
            return None
        fitting = [c for c in self.callees.get(function, ()) if len(c.parameters) == len(actual)]
        if len(fitting) > 1:
            places = [self.place(argument) for argument in actual]
            typed = [
                c
                for c in fitting
                if all(
                    place is None
                    or resolved_type(p.element, self.types) == resolved_type(self.elements[place.buffer], self.types)
                    for p, place in zip(c.parameters, places, strict=True)
                )
            ]
            fitting = typed or fitting
        if len(fitting) > 1:
            # Overloads for other types read the same in what matters, if they are as long.
            shapes = {(tuple((p.pointer, p.name) for p in c.parameters), c.body) for c in fitting}
            if len(shapes) > 1:
                return None
        return fitting[0] if fitting else None

    def template_value(self, text: str) -> Polynomial | None:
        try:
            return number(evaluate(text, self.constants))
        except ExpressionError:
            return self.of_name(text) if text.isidentifier() else None

    def result_of(self, node: Node) -> Polynomial | None:
        """What a call returned that has just been read."""
        inner = self.unwrapped(node) or node
        result = self.results.pop(inner.id, None)
        return result if isinstance(result, Polynomial) else None

    def polynomial(self, node: Node | None) -> Polynomial | None:
        """An integer expression as a polynomial over parameters and index variables, or None."""
        result = self._polynomial(node)
        if result is None or result.too_large:
            return None
        result = self.with_global_indices(result)
        if self.stepped.keys() & result.names:
            self.note_steps(result)
        return result

    def note_steps(self, polynomial: Polynomial) -> None:
        """A loop that steps over rows of a tile adds its variable to a thread's index."""
        for monomial, coefficient in polynomial.terms.items():
            for label in set(monomial) & self.stepped.keys():
                rest = [n for n in monomial if n != label]
                for axis in AXES:
                    for index in (f"threadIdx.{axis}", f"gid.{axis}"):
                        of_thread = polynomial.terms.get(tuple(sorted([*rest, index])))
                        if of_thread is not None and of_thread * self.stepped[label] == coefficient:
                            self.steps.setdefault(axis, set()).add(self.stepped[label])

    def _polynomial(self, node: Node | None) -> Polynomial | None:
        node = self.unwrapped(node) or node
        if node is None:
            return None
        match node.type:
            case "number_literal" | "sizeof_expression" | "true" | "false":
                try:
                    return number(evaluate(spell(node)))
                except ExpressionError:
                    return None
            case "identifier":
                return self.of_name(spell(node))
            case "qualified_identifier":
                value = self.members.get(spell(node).replace(" ", ""))
                return None if value is None else number(value)
            case "field_expression":
                return self.of_field(node)
            case "cast_expression":
                return self.converted(node.child_by_field_name("value"), spell(node.child_by_field_name("type")))
            case "unary_expression":
                inner = self._polynomial(node.child_by_field_name("argument"))
                operator = spell(node.child_by_field_name("operator"))
                return None if inner is None else -inner if operator == "-" else inner if operator == "+" else None
            case "call_expression":
                element = self.loaded_element(node)
                return self.of_load(element) if element is not None else self.of_call(node)
            case "subscript_expression" | "pointer_expression":
                return self.of_load(self.loaded_element(node))
            case "conditional_expression":
                return self.of_choice(node)
            case "binary_expression":
                return self.of_binary(node)
            case _:
                return None

    def converted(self, node: Node | None, kind: str) -> Polynomial | None:
        inner = self._polynomial(node)
        if inner is None or resolved_type(kind, self.types) in WIDE:
            return inner
        narrow = inner.constant is not None and 0 <= inner.constant < 128
        return inner if narrow and resolved_type(kind, self.types) in INTEGERS else None

    def of_field(self, node: Node) -> Polynomial | None:
        text = spell(node).replace(" ", "")
        base, _, member = text.partition(".")
        if base in ("threadIdx", "blockIdx", "blockDim", "gridDim") and member in AXES:
            return name(text)
        if base in self.vectors and member in ("x", "y", "z", "w"):
            return self.of_load(Place(self.vectors[base], ZERO))
        argument = node.child_by_field_name("argument")
        if argument is not None and argument.type == "call_expression" and member:
            callee = argument.child_by_field_name("function")
            function = function_name(callee)
            axis = spell(node.child_by_field_name("field"))
            if callee is not None and callee.type == "field_expression" and axis in AXES:
                group = self.group(callee.child_by_field_name("argument"))
                built_in = {"thread_index": "threadIdx", "group_index": "blockIdx", "group_dim": "blockDim",
                            "dim_threads": "blockDim", "block_index": "blockIdx", "dim_blocks": "gridDim",
                            "grid_dim": "gridDim"}.get(function)  # fmt: skip
                if group is not None and built_in is not None and group.kind in ("block", "grid"):
                    return name(f"{built_in}.{axis}")
        return None

    def of_load(self, place: Place | None) -> Polynomial | None:
        """An integer that is loaded: a variable of its own."""
        if place is None or place.recast:
            return None
        element = self.elements[place.buffer]
        if element not in INTEGERS or place.buffer not in self.pointers:
            return None
        limit = BYTE_RANGE.get(element)
        high = number(limit) if limit is not None else None
        symbol = self.symbol(Range(ZERO if limit is not None else None, high, False, high), f"{place.buffer}[]")
        self.loads[next(iter(symbol.names))] = place.buffer
        return symbol

    def of_choice(self, node: Node) -> Polynomial | None:
        then, otherwise = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        first, second = self._polynomial(then), self._polynomial(otherwise)
        return first if first == second else self.hull(first, second)

    def of_name(self, label: str) -> Polynomial | None:
        if label in self.opaque:
            return None
        if label in self.scope.values:
            return self.scope.values[label]
        reference = self.scope.places.get("&" + label)
        if reference is not None:
            return self.of_load(reference)
        if label in self.constants:
            return number(self.constants[label])
        return number(32) if label == "warpSize" else None

    def group(self, node: Node | None) -> Group | None:
        """The cooperative group that an expression is."""
        node = self.unwrapped(node) or node
        if node is None:
            return None
        if node.type == "identifier":
            return self.scope.groups.get(spell(node))
        if node.type != "call_expression":
            return None
        function = function_name(node.child_by_field_name("function"))
        if function == "this_thread_block":
            return Group("block")
        if function == "this_grid":
            return Group("grid")
        if function == "tiled_partition":
            texts, actual = template_arguments(node), arguments(node)
            size = self.template_value(texts[0]) if texts else self.polynomial(actual[1]) if len(actual) > 1 else None
            width = size.constant if size is not None else None
            base = self.group(actual[0]) if actual else None
            return Group("tile", width) if width and base is not None and base.kind in ("block", "tile") else None
        return None

    def rank(self) -> Polynomial:
        """The number of a thread in its block."""
        if self.many_dimensions:
            flat = name("threadIdx.x") + name("blockDim.x") * name("threadIdx.y")
            return flat + name("blockDim.x") * name("blockDim.y") * name("threadIdx.z")
        self.flat = True
        return name("threadIdx.x")

    def of_group(self, callee: Node, function: str) -> Polynomial | None:
        group = self.group(callee.child_by_field_name("argument"))
        if group is None:
            return None
        threads = name("blockDim.x")
        if self.many_dimensions:
            threads = threads * name("blockDim.y") * name("blockDim.z")
        match group.kind, function:
            case "block", "thread_rank":
                return self.rank()
            case "block", "size" | "num_threads":
                return threads
            case "tile", "thread_rank" if group.size:
                return self.divided("%", self.rank(), number(group.size))
            case "tile", "meta_group_rank" if group.size:
                return self.divided("/", self.rank(), number(group.size))
            case "tile", "meta_group_size" if group.size:
                return ceiling(threads, number(group.size))
            case "tile", "size" | "num_threads" if group.size:
                return number(group.size)
            case "grid", "thread_rank" if not self.many_dimensions:
                self.flat = True
                return self.with_global_indices(name("threadIdx.x") + name("blockIdx.x") * name("blockDim.x"))
            case "grid", "size" | "num_threads" if not self.many_dimensions:
                return name("blockDim.x") * name("gridDim.x")
            case "grid", "block_rank" if not self.many_dimensions:
                self.flat = True
                return name("blockIdx.x")
            case _:
                return None

    def of_call(self, node: Node) -> Polynomial | None:
        callee = node.child_by_field_name("function")
        function = function_name(callee)
        nodes = arguments(node)
        if callee is not None and callee.type == "field_expression":
            return self.of_group(callee, function)
        if function in CASTS:
            texts = template_arguments(node)
            return self.converted(nodes[0], texts[0]) if texts and len(nodes) == 1 else None
        if callee is not None and len(nodes) == 1 and resolved_type(spell(callee), self.types) in WIDE:
            return self._polynomial(nodes[0])
        actual = [self._polynomial(argument) for argument in nodes]
        if function in ("__umul24", "__mul24") and len(actual) == 2 and actual[0] and actual[1]:
            return actual[0] * actual[1]
        if function.lower() in CEILINGS and len(actual) == 2 and actual[0] is not None and actual[1] is not None:
            if not any(varies(n) for p in actual if p is not None for n in p.names):
                return ceiling(actual[0], actual[1])
        if function in ("min", "max") and len(actual) == 2:
            return self.clamped(function, actual[0], actual[1])
        target = self.callee(callee, function, nodes)
        return self.value_of(node, target, nodes) if target is not None else None

    def value_of(self, node: Node, target: Callee, actual: list[Node]) -> Polynomial | None:
        """What a small function of the text returns, `return blockIdx.x * blockDim.x + threadIdx.x;`."""
        if len(target.body) > 400 or any(p.pointer for p in target.parameters):
            return None
        before = len(self.accesses), dict(self.unsure), set(self.thread_axes)
        outer, self.quiet = self.quiet, True
        self.enter(node, target, actual)
        self.quiet = outer
        if len(self.accesses) != before[0] or self.unsure != before[1]:
            del self.accesses[before[0] :]
            self.unsure = before[1]
            return None
        self.thread_axes = before[2]
        return self.result_of(node)

    def clamped(self, function: str, first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
        """`min` and `max` as a fresh variable between the bounds that follow from both sides."""
        if first is None or second is None:
            return None
        lows = [self.smallest(p) for p in (first, second)]
        highs = [self.largest(p) for p in (first, second)]
        fixed = [p for p in (first, second) if not any(varies(n) for n in p.names)]
        if len(fixed) == 2 and all(p.constant is not None for p in fixed):
            both = [p.constant or 0 for p in fixed]
            return number(min(both) if function == "min" else max(both))
        if function == "min":
            high = next((p for p in (*fixed, *highs) if p is not None), None)
            low = ZERO if all(b is not None and b.never_negative for b in lows) else self.index_low(first, second, lows)
            if high is None or low is None:
                return None
            return self.symbol(Range(low, high + ONE, False, high + ONE), of=(first, second))
        other = next((h for p, h in zip((first, second), highs, strict=True) if p != ZERO and h is not None), None)
        if ZERO not in (first, second) or other is None:
            return None
        # With i - 1 at most n - 2 and n at least 1, neither side is above n - 1.
        above = Polynomial({monomial: c for monomial, c in (other + ONE).terms.items() if c > 0})
        return self.symbol(Range(ZERO, above, False, above), of=(first, second)) if above.terms else None

    def index_low(self, first: Polynomial, second: Polynomial, lows: list[Polynomial | None]) -> Polynomial | None:
        """`min(i + 1, n - 1)`: with `i` below `n` the second side is an index of the same buffer, so at least 0."""
        for side, other in ((first, second), (second, first)):
            low = lows[0] if side is first else lows[1]
            if low is not None and low.never_negative and not any(varies(n) for n in other.names):
                if (other + ONE).never_negative:
                    return ZERO
        return None

    def symbol(self, range_: Range, tag: str = "t", of: Iterable[Polynomial | None] = ()) -> Polynomial:
        """A fresh variable with this range that follows from the variables of `of`."""
        self.fresh += 1
        label = f"@{tag}{self.fresh}"
        self.symbols[label] = range_
        self.bases[label] = self.bases_of(*of)
        return name(label)

    def derived(self, what: tuple[str, Polynomial, Polynomial], range_: Range, of: Polynomial) -> Polynomial:
        """The variable that a division gives: the same one each time that the same is asked under the same bounds."""
        key = (*what, range_.high, range_.full)
        if key not in self.quotients:
            self.quotients[key] = self.symbol(range_, of=(of,))
        return self.quotients[key]

    def below(self, part: Polynomial, whole: Polynomial) -> Polynomial:
        """Note that a part is never more than the whole, so that `i - i % n` is known not to be negative."""
        if len(self.scope.guards) < _MAX_GUARDS and any(varies(label) for label in whole.names):
            guard = Guard(whole - part, ">=", ZERO)
            if guard not in self.scope.guards:
                self.scope.guards += (guard, Guard(part - whole, "<", ONE))
        return part

    def never_negative(self, polynomial: Polynomial) -> bool:
        return never_negative(polynomial, self.scope.guards, self.range_of)

    def bases_of(self, *polynomials: Polynomial | None) -> frozenset[str]:
        """The built-in indices that polynomials depend on."""
        labels = {label for p in polynomials if p is not None for label in p.names if varies(label)}
        found = {label for label in labels if not label.startswith("@")}
        return frozenset(found.union(*(self.bases.get(label, frozenset()) for label in labels)))

    def of_binary(self, node: Node) -> Polynomial | None:
        left = self._polynomial(node.child_by_field_name("left"))
        right = self._polynomial(node.child_by_field_name("right"))
        if left is None or right is None:
            return None
        return self.combined(spell(node.child_by_field_name("operator")), left, right)

    def combined(self, operator: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
        result: Polynomial | None = None
        match operator:
            case "+":
                result = left + right
            case "-":
                result = left - right
            case "*":
                result = left * right
            case "<<" if right.constant is not None and 0 <= right.constant < 40:
                result = left * number(1 << right.constant)
            case "/" | "%":
                result = self.divided(operator, self.with_global_indices(left), right)
            case ">>" if right.constant is not None and 0 <= right.constant < 40:
                result = self.divided("/", self.with_global_indices(left), number(1 << right.constant))
            case "&":
                result = self.masked(self.with_global_indices(left), self.with_global_indices(right))
            case "|" | "^":
                result = self.mixed(operator, left, right)
        return None if result is None or result.too_large else result

    def masked(self, left: Polynomial, right: Polynomial) -> Polynomial | None:
        if left.constant is not None:
            left, right = right, left
        mask = right.constant
        if left.constant is not None and mask is not None:
            return number(left.constant & mask) if left.constant >= 0 and mask >= 0 else None
        if mask is None:
            # No more than the smaller of them, if neither is negative.
            highs = [self.largest(p) for p in (left, right)]
            if not (self.never_negative(left) and self.never_negative(right)):
                return None
            known = [high for high in highs if high is not None]
            fixed = [p for p, high in zip((left, right), highs, strict=True) if p == high]
            high = next(iter((*fixed, *known)), None)
            if high is None:
                return None
            masked = self.symbol(Range(ZERO, high + ONE, False, high + ONE), of=(left, right))
            return self.below(self.below(masked, left), right)
        if mask < 0:
            return None
        if mask & (mask + 1) == 0:
            return self.divided("%", left, right + ONE)
        return self.symbol(Range(ZERO, right + ONE, False, right + ONE), of=(left,))

    def mixed(self, operator: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
        """`|` and `^` of numbers that are never negative have no more bits than the longer of them."""
        if left.constant is not None and right.constant is not None and min(left.constant, right.constant) >= 0:
            return number(left.constant | right.constant if operator == "|" else left.constant ^ right.constant)
        tops = [self.largest(p) for p in (left, right)]
        lows = [self.smallest(p) for p in (left, right)]
        if any(low is None or not low.never_negative for low in lows):
            return None
        values = [top.constant if top is not None else None for top in tops]
        if any(value is None for value in values):
            return None
        high = number(1 << max(value or 0 for value in values).bit_length())
        return self.symbol(Range(ZERO, high, False, high), of=(left, right))

    def divided(self, operator: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
        """`/` and `%` of what is never negative; exact where the division is."""
        sizes_only = not any(varies(label) for label in left.names) and () not in left.terms
        if sizes_only and (right.constant or 2) > 1 and not right.names & self.scalars.keys():
            self.divided_names |= left.identifiers & self.scalars.keys()
        if left.constant is not None and right.constant is not None and left.constant >= 0 and right.constant > 0:
            return number(left.constant // right.constant if operator == "/" else left.constant % right.constant)
        if not right.terms or any(varies(n) for n in right.names) or not self.never_negative(left):
            return None
        if right.constant is not None and right.constant < 0:
            return None
        ranges = {n: self.range_of(n) for n in left.names if varies(n)}
        if operator == "%":
            if not ranges:
                return None if left.divided_by(right) is None else ZERO
            top = self.largest(left)
            if top is not None and (right - ONE - top).never_negative_for_sizes:
                return left
            whole = self.is_whole(left, ranges)
            return self.below(self.derived((operator, left, right), Range(ZERO, right, whole, right), left), left)
        exact = left.divided_by(right)
        if exact is not None and not exact.too_large:
            return exact
        if not ranges:
            return floor(left, right)
        top = self.largest(left)
        if top is None:
            return None
        exact_top = (top + ONE).divided_by(right)
        quotient = exact_top if exact_top is not None else ceiling(top + ONE, right)
        full = exact_top is not None and self.is_whole(left, ranges)
        return self.derived((operator, left, right), Range(ZERO, quotient, full, quotient), left)

    def is_whole(self, polynomial: Polynomial, ranges: Mapping[str, Range]) -> bool:
        return polynomial.monomial and len(ranges) == 1 and all(range_.full for range_ in ranges.values())

    def with_global_indices(self, polynomial: Polynomial) -> Polynomial:
        """`blockIdx.x * blockDim.x + threadIdx.x` as the one variable `gid.x`, also with a built-in block size."""
        for axis in AXES:
            thread, block, size = f"threadIdx.{axis}", f"blockIdx.{axis}", f"blockDim.{axis}"
            if thread not in polynomial.names or block not in polynomial.names:
                continue
            for monomial, coefficient in list(polynomial.terms.items()):
                if monomial.count(thread) != 1:
                    continue
                rest = tuple(n for n in monomial if n != thread)
                pair = tuple(sorted((*rest, block, size)))
                whole = Polynomial({monomial: coefficient})
                joined = Polynomial({tuple(sorted((*rest, f"gid.{axis}"))): coefficient})
                if polynomial.terms.get(pair) == coefficient:
                    polynomial = polynomial - whole - Polynomial({pair: coefficient}) + joined
                    continue
                single = tuple(sorted((*rest, block)))
                built_in = polynomial.terms.get(single, 0)
                if built_in and built_in % coefficient == 0 and built_in // coefficient > 1:
                    factor = built_in // coefficient
                    if self.forced.setdefault(axis, factor) == factor:
                        polynomial = polynomial - whole - Polynomial({single: built_in}) + joined
        return polynomial

    def smallest(self, polynomial: Polynomial) -> Polynomial | None:
        return extreme(polynomial, self.ranges_of(polynomial), largest=False)

    def largest(self, polynomial: Polynomial) -> Polynomial | None:
        return extreme(polynomial, self.ranges_of(polynomial), largest=True)

    def ranges_of(self, polynomial: Polynomial) -> dict[str, Range]:
        return {n: self.range_of(n) for n in polynomial.names if varies(n)}


def greater(first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
    if first is None or second is None:
        return None
    if (first - second).never_negative_for_sizes:
        return first
    return second if (second - first).never_negative_for_sizes else None


def without_rest(bound: Polynomial) -> Polynomial:
    """The bound without a constant that a guard takes off, as in `x < width - 1`."""
    return Polynomial({m: c for m, c in bound.terms.items() if m or c > 0 or len(bound.terms) == 1})


def plain_groups(text: str) -> str:
    """Declarations of cooperative groups as `auto`, whose template arguments the grammar takes for comparisons."""
    if "cooperative_groups" not in text and "cg" not in text:
        return text
    return _GROUP_LOCAL.sub(lambda m: f"auto {m[1]} =" if m[2] == "=" else f"auto {m[1]} = (", text)
