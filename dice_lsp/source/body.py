"""Reads a function's body: every access to a pointer parameter's memory, with the values that its subscript may have.

The body is walked once in the order of the text. Integer locals are polynomials over parameters and over variables that
differ from thread to thread or from iteration to iteration; pointer locals are places in a parameter's memory. Macros
are written out and device functions of the text are entered with their arguments, so that what they do with a pointer is
seen. Where two ways meet, what differs is forgotten.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from attrs import Factory, define, evolve, frozen
from tree_sitter import Node

from dice_lsp.records import Parameter
from dice_lsp.source.accesses import (
    BYTE_RANGE,
    INTEGERS,
    SHARED,
    Access,
    Accesses,
    Guard,
    IndexUse,
    Range,
    SharedArray,
    default_range,
    extreme,
    never_negative,
    varies,
)
from dice_lsp.source.device_code import EMPTY, Callee, Context, expanded, resolved_type, size_of
from dice_lsp.source.expressions import SIZEOF, ExpressionError, evaluate
from dice_lsp.source.polynomials import ONE, ZERO, Polynomial, ceiling, floor, name, number, product
from dice_lsp.source.syntax import body_tree, named, spell, walk
from dice_lsp.source.tokens import split_top_level

_ATOMICS = {
    "atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicInc", "atomicDec", "atomicExch", "atomicCAS", "atomicAnd",
    "atomicOr", "atomicXor", "atomicAdd_block", "atomicAdd_system",
}  # fmt: skip
_LOADS = {"__ldg", "__ldcg", "__ldca", "__ldcs", "__ldcv", "__ldlu"}
_STORES = {"__stcg", "__stcs", "__stwb", "__stwt"}
_AXES = ("x", "y", "z")
_ARITHMETIC = ("binary_expression", "field_expression", "identifier", "cast_expression", "unary_expression")
_CEILINGS = {"ceil_div", "div_ceil", "ceildiv", "cdiv", "div_up", "divup", "idivup", "updiv", "divide_up", "divceil"}
_CASTS = ("static_cast", "reinterpret_cast", "const_cast")
_WIDE = INTEGERS - {"char", "unsigned char", "signed char", "uint8_t", "int8_t", "short", "unsigned short", "int16_t",
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
class _Group:
    """A cooperative group that a local stands for."""

    kind: str
    """`block`, `tile` or `grid`."""
    size: int | None = None
    """Threads of a tile."""


@define
class _Scope:
    values: dict[str, Polynomial | None] = Factory(dict)
    places: dict[str, Place] = Factory(dict)
    groups: dict[str, _Group] = Factory(dict)
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

    def fork(self) -> "_Scope":
        return _Scope(
            dict(self.values), dict(self.places), dict(self.groups), set(self.integers), dict(self.tests),
            dict(self.ranges), self.guards, self.certain,
        )  # fmt: skip


Fact = tuple[Polynomial, str, Polynomial]
"""`varying part`, `<` or `>=` or `==`, `bound without variables`."""


@frozen
class _Loop:
    """What the header of a loop says of its variable."""

    label: str
    value: Polynomial
    trips: Polynomial | None
    certain: bool


@lru_cache(maxsize=512)
def _cached(
    text: str,
    parameters: tuple[Parameter, ...],
    constants: tuple[tuple[str, int], ...],
    is_kernel: bool,
    context: Context,
) -> Accesses:
    try:
        return _Analyst(parameters, dict(constants), is_kernel, context).run(text)
    except RecursionError:
        # Nested deeper than any hand writes: as good as unreadable.
        return _Analyst(parameters, dict(constants), is_kernel, EMPTY).run("}")


def read_accesses(
    text: str,
    parameters: tuple[Parameter, ...],
    constants: Mapping[str, int],
    *,
    is_kernel: bool,
    context: Context = EMPTY,
) -> Accesses:
    """What the function with this body does with its parameters.

    `constants` are integers that its names may stand for, `context` the macros, functions and types that it uses.
    """
    used = {word: constants[word] for word in _words(text, context) if word in constants}
    return _cached(text, parameters, tuple(sorted(used.items())), is_kernel, context)


def _words(text: str, context: Context) -> set[str]:
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    for macro in context.macros:
        words.update(re.findall(r"[A-Za-z_]\w*", macro.text))
    for callee in context.callees:
        words.update(re.findall(r"[A-Za-z_]\w*", callee.body))
    return words


class _Analyst:
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
        self.scope = _Scope(
            values={p.name: name(p.name) if p.element in INTEGERS else None for p in self.scalars.values()},
            places={p: Place(p, ZERO) for p in self.pointers},
            integers={p.name for p in self.scalars.values() if p.element in _WIDE},
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

    def run(self, text: str) -> Accesses:
        written = expanded(text, self.context.macros)
        body = body_tree(_plain_groups(written))
        understood = body is not None and not body.has_error
        used: set[str] = set()
        if body is not None and understood:
            used = {spell(node) for node in walk(body) if node.type == "identifier"} | set(
                re.findall(r"\b[A-Za-z_]\w*", text)
            )
            self.many_dimensions = re.search(r"\b(?:threadIdx|blockDim)\s*\.\s*[yz]\b", written) is not None
            self.opaque = _opaque(body)
            self.whole_grid = bool(used & {"cudaGridDependencySynchronize"})
            self.statement(body)
        if self.left <= 0:
            self.unsure |= dict.fromkeys(self.pointers, "the body is too long to be followed")
        return Accesses(
            accesses=tuple(self.accesses), unsure=self.unsure, gathers=self.gathers, index_uses=tuple(self.index_uses),
            indices=frozenset(self.indices), axes=self.axes, block_indices=self.block_indices,
            thread_axes=frozenset(self.thread_axes), divided=frozenset(self.divided_names),
            thread_bounds=self.thread_bounds, strided=frozenset(self.strided), forced_block=self.forced,
            shared=self.shared, dynamic_shared=self.dynamic_shared, whole_grid=self.whole_grid,
            block_steps=_agreed(self.steps), flat_ranks=self.flat, understood=understood,
            empty=body is not None and not named(body), used=frozenset(used),
        )  # fmt: skip

    # Scopes

    def forked(self, work: Callable[[], None]) -> _Scope:
        """The scope after some work in a scope of its own; the present one stays as it is."""
        outer = self.scope
        inner = self.scope = outer.fork()
        work()
        self.scope = outer
        return inner

    def within(self, facts: Iterable[Fact], certain: bool, work: Callable[[], None]) -> _Scope:
        def under() -> None:
            self.apply(facts)
            self.scope.certain = self.scope.certain and certain
            work()

        return self.forked(under)

    def take(self, inner: _Scope) -> None:
        """Go on with the values that an inner scope ends with."""
        self.meet(inner, inner)

    def meet(self, first: _Scope, second: _Scope) -> None:
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
        high = _greater(highs[0], highs[1])
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

    # Statements

    def statement(self, node: Node) -> None:
        self.left -= 1
        if self.left <= 0:
            return
        match node.type:
            case "compound_statement":
                self.take(self.forked(lambda: self.block(node)))
            case "declaration":
                self.declaration(node)
            case "if_statement":
                self.branch(node)
            case "for_statement":
                self.for_loop(node)
            case "while_statement" | "do_statement":
                self.while_loop(node)
            case "switch_statement" | "for_range_loop":
                self.expression(node.child_by_field_name("condition") or node.child_by_field_name("right"))
                changed = _assigned(node)
                self.forget(changed)
                body = node.child_by_field_name("body")
                if body is not None:
                    self.within((), False, lambda: self.statement(body))
                self.forget(changed)
            case "expression_statement":
                for child in named(node):
                    self.expression(child)
            case "return_statement":
                for child in named(node):
                    if self.entered:
                        place = self.place(child)
                        self.returned.append(place if place is not None else self.polynomial(child))
                        if place is not None:
                            self.visit_place(child)
                            continue
                    self.expression(child)
                # What follows in this block is reached by no thread; what follows the block is handled by `branch`.
            case "break_statement" | "continue_statement":
                pass
            case "case_statement" | "labeled_statement" | "else_clause":
                for child in named(node):
                    self.statement(child)
            case _ if node.type.startswith("preproc"):
                changed = _assigned(node)
                for child in named(node):
                    self.within((), False, _later(self.statement, child))
                self.forget(changed)
            case _:
                self.expression(node)

    def block(self, node: Node) -> None:
        for child in named(node):
            self.statement(child)
            if self.may_leave(child):
                self.scope.certain = False

    def declaration(self, node: Node) -> None:
        words = spell(node)
        shared = "__shared__" in words.split("=")[0]
        if shared and "extern" in words.split():
            self.dynamic_shared = True
        kind = spell(node.child_by_field_name("type"))
        for declarator in node.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
            inner = declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
            if inner is None:
                continue
            label = _declared_name(inner)
            if not label:
                continue
            if shared and inner.type == "array_declarator":
                self.share(label, kind, inner, dynamic="extern" in words.split())
                continue
            if "fragment<" in kind:
                self.fragment(label, kind)
            group = self.group(value) if value is not None else None
            if group is not None:
                self.declare(label)
                self.scope.groups[label] = group
                continue
            if self.points(inner, value, label):
                continue
            self.vectors.pop(label, None)
            if value is not None and (lanes := self.integer_vector(value)) is not None and label not in self.opaque:
                self.vectors[label] = lanes
            plain = inner.type == "identifier"
            integer = plain and (kind == "auto" or resolved_type(kind, self.types) in INTEGERS)
            known = self.polynomial(value) if integer and value is not None and label not in self.opaque else None
            boolean = plain and kind in ("bool", "auto") and value is not None and label not in self.opaque
            meaning = (self.facts(value, negated=False), self.facts(value, negated=True)) if boolean else None
            narrow = kind != "auto" and resolved_type(kind, self.types) not in _WIDE
            if value is not None:
                # A thread's index in a local counts where the local is used.
                outer, self.quiet = self.quiet, self.quiet or known is not None
                self.expression(value)
                self.quiet = outer
                if integer and known is None:
                    known = self.result_of(value)
            self.declare(label)
            self.flows(label, value)
            self.scope.values[label] = None if narrow or not integer else known
            if integer and not narrow:
                self.scope.integers.add(label)
            elif meaning is not None:
                self.scope.tests[label] = meaning

    def points(self, declarator: Node, value: Node | None, label: str) -> bool:
        """Whether a declared pointer or reference is a place in a parameter's memory, as in `float* row = x + r * n`."""
        if value is None or label in self.opaque or declarator.type == "array_declarator":
            return False
        reference = declarator.type == "reference_declarator"
        place = self.element(value) if reference else self.place(value)
        if place is None:
            return False
        self.visit_place(value)
        self.declare(label)
        self.scope.places["&" + label if reference else label] = place
        if reference:
            self.scope.declared.add("&" + label)
        return True

    def integer_vector(self, value: Node) -> str | None:
        """The integer buffer that `int4 v = reinterpret_cast<const int4*>(x)[i]` loads from."""
        place = self.loaded_element(self.unwrapped(value) or value)
        if place is None or place.buffer not in self.pointers or self.elements[place.buffer] not in _WIDE:
            return None
        return place.buffer if place.unit > 1 and place.recast else None

    def flows(self, label: str, value: Node | None) -> None:
        """Note that the values of integer buffers reach a local."""
        sources, direct = self.sources(value) if value is not None else (set(), False)
        if sources:
            before = self.loaded.get(label)
            self.loaded[label] = (sources, direct) if before is None else (sources | before[0], False)

    def share(self, label: str, kind: str, declarator: Node, *, dynamic: bool) -> None:
        """A shared array: memory of its own, whose subscripts say for which block it is made."""
        sizes = self.array_sizes(declarator)
        buffer = SHARED + ".".join([*self.entered, label])
        self.shared[buffer] = SharedArray(resolved_type(kind, self.types), sizes, dynamic)
        self.elements[buffer] = resolved_type(kind, self.types)
        self.declare(label)
        rows = [number(size) if size is not None else None for size in sizes[1:]]
        if None in rows:
            self.unsure[buffer] = "its rows have no known length"
            return
        known = [row for row in rows if row is not None]
        self.scope.places[label] = Place(buffer, ZERO, rows=tuple(product(known[i:]) for i in range(len(known))))

    def fragment(self, label: str, kind: str) -> None:
        """Note the shape of a `wmma::fragment<use, M, N, K, type, layout>`."""
        inner = kind.split("<", 1)[1].rsplit(">", 1)[0]
        parts = [" ".join(inner[a:b].split()).rsplit("::", 1)[-1] for a, b in split_top_level(inner, angles=True)]
        sizes = [self.template_value(part) for part in parts[1:4]]
        if len(parts) < 5 or any(size is None or size.constant is None for size in sizes):
            return
        m, n, k = (size.constant or 0 for size in sizes if size is not None)
        rows, columns = {"matrix_a": (m, k), "matrix_b": (k, n)}.get(parts[0], (m, n))
        self.fragments[label] = parts[0], rows, columns, parts[5] if len(parts) > 5 else ""

    def array_sizes(self, node: Node) -> tuple[int | None, ...]:
        sizes: list[int | None] = []
        inner: Node | None = node
        while inner is not None and inner.type == "array_declarator":
            size = inner.child_by_field_name("size")
            polynomial = self.polynomial(size) if size is not None else None
            sizes.insert(0, polynomial.constant if polynomial is not None else None)
            inner = inner.child_by_field_name("declarator")
        return tuple(sizes)

    def branch(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        then = node.child_by_field_name("consequence")
        otherwise = node.child_by_field_name("alternative")
        initializer = condition.child_by_field_name("initializer") if condition is not None else None
        if initializer is not None:
            self.statement(initializer)
        test = self.tested(condition)
        self.tests(test)
        positive, certain = self.facts(test, negated=False)
        negative, negative_certain = self.facts(test, negated=True)
        begin = len(self.accesses)
        first = self.within(
            positive, certain or otherwise is not None, lambda: self.statement(then) if then is not None else None
        )
        middle = len(self.accesses)
        second = self.within(negative, True, lambda: self.statement(otherwise) if otherwise is not None else None)
        if otherwise is not None and not (certain and negative_certain):
            self.join(begin, middle)
        then_leaves = then is not None and self.leaves(then)
        else_leaves = otherwise is not None and self.leaves(otherwise)
        if then_leaves and not else_leaves:
            self.take(second)
            self.apply(negative)
            self.scope.certain = self.scope.certain and negative_certain
        elif else_leaves and not then_leaves:
            self.take(first)
            self.apply(positive)
            self.scope.certain = self.scope.certain and certain
        else:
            self.meet(first, second)

    def tested(self, condition: Node | None) -> Node | None:
        value = condition.child_by_field_name("value") if condition is not None else None
        return self.unwrapped(value if value is not None else condition)

    def leaves(self, node: Node) -> bool:
        """Whether a branch always ends the thread's work on what follows."""
        if node.type == "else_clause":
            return bool(named(node)) and self.leaves(named(node)[-1])
        if node.type in ("return_statement", "continue_statement", "break_statement"):
            return True
        return node.type == "compound_statement" and bool(named(node)) and self.leaves(named(node)[-1])

    def join(self, begin: int, middle: int) -> None:
        """Of the accesses of two branches, those are certain that both make."""
        first, second = self.accesses[begin:middle], self.accesses[middle:]

        def kept(own: list[Access], other: list[Access]) -> list[Access]:
            places = {(a.buffer, a.subscript) for a in other if a.certain and a.stores}
            return [evolve(a, certain=a.certain and (a.buffer, a.subscript) in places) for a in own]

        self.accesses[begin:] = kept(first, second) + kept(second, first)

    def may_leave(self, node: Node) -> bool:
        """Whether some threads end in a statement in a way that `branch` has not turned into a fact."""
        if node.type in ("declaration", "expression_statement", "return_statement"):
            return False
        ends = [inner for inner in walk(node) if inner.type in ("return_statement", "goto_statement")]
        if not ends:
            return False
        if node.type != "if_statement" or node.child_by_field_name("alternative") is not None or len(ends) > 1:
            return True
        then = node.child_by_field_name("consequence")
        return then is None or not self.leaves(then)

    def unwrapped(self, node: Node | None) -> Node | None:
        while node is not None and node.type in ("condition_clause", "parenthesized_expression"):
            inner = named(node)
            node = inner[0] if len(inner) == 1 else None
        return node

    # Conditions

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
            self.narrow(monomial[0], operator, ceiling(bound, by), ceiling(_without_rest(bound), by))

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
                self.narrow(monomial[0], "<", ceiling(high, by), ceiling(_without_rest(high), by))

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

    # Loops

    def for_loop(self, node: Node) -> None:
        initializer = node.child_by_field_name("initializer")
        condition = node.child_by_field_name("condition")
        update = node.child_by_field_name("update")
        body = node.child_by_field_name("body")

        def work() -> None:
            loop = self.counted(initializer, condition, update, body)
            if initializer is not None:
                if initializer.type == "declaration":
                    for child in walk(initializer):
                        if child.type == "init_declarator" and loop is not None:
                            self.note_threads(self.polynomial(child.child_by_field_name("value")))
                    self.declaration(initializer)
                else:
                    self.expression(initializer)
            if loop is None:
                for part in (initializer, condition):
                    # Row pointers and the like: a loop over what the data say.
                    self.indices |= self.sources(part)[0] if part is not None else set()
            self.loop(node, condition, update, body, loop)

        self.take(self.forked(work))

    def while_loop(self, node: Node) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        at_least_once = node.type == "do_statement"
        last = named(body)[-1] if body is not None and body.type == "compound_statement" and named(body) else None
        if not at_least_once and condition is not None and last is not None and last.type == "expression_statement":
            rest = {label for child in named(body)[:-1] for label in _assigned(child)} if body is not None else set()
            for label, update in _assignments(last):
                start = self.scope.values.get(label)
                loop = None if label in rest else self.turns(label, start, condition, update)
                if loop is not None:
                    self.note_threads(start)
                    self.take(self.forked(functools.partial(self.loop, node, condition, None, body, loop)))
                    return
        self.take(self.forked(lambda: self.loop(node, None if at_least_once else condition, None, body, None)))
        if at_least_once:
            self.expression(self.unwrapped(condition))

    def loop(
        self, node: Node, condition: Node | None, update: Node | None, body: Node | None, loop: _Loop | None
    ) -> None:
        changed = _assigned(node)
        begins = {label: (self.scope.values.get(label), self.scope.places.get(label)) for label in changed}
        self.forget(changed)
        trips = loop.trips if loop is not None else None
        steps = self.inductions(changed, update, body)
        turn = self.symbol(Range(ZERO, trips, False, trips), "turn")
        for label, step in steps.items():
            self.advance(label, begins[label], step, turn)
        if loop is not None:
            self.scope.values[loop.label] = loop.value
        self.expression(self.unwrapped(condition))
        test = self.unwrapped(condition)
        facts = [] if loop is not None else self.facts(test, negated=False)[0]

        def work() -> None:
            if body is not None:
                self.statement(body)
            if loop is None:
                self.expression(update)

        surely = loop is not None and loop.certain and not (body is not None and _jumps(body))
        self.within(facts, surely, work)
        self.forget(changed)
        if trips is not None:
            after = self.symbol(Range(ZERO, trips + ONE, False, trips + ONE), "turn")
            for label, step in steps.items():
                self.advance(label, begins[label], step, after)

    def advance(
        self, label: str, begin: tuple[Polynomial | None, Place | None], step: Polynomial, turn: Polynomial
    ) -> None:
        """Set a name to what it is after some turns of a loop that adds `step` to it in each."""
        value, place = begin
        if place is not None:
            self.scope.places[label] = self.moved(place, turn * step)
        elif place is None and value is not None:
            self.scope.values[label] = value + turn * step

    def inductions(self, changed: set[str], update: Node | None, body: Node | None) -> dict[str, Polynomial]:
        """Names that each turn of a loop adds the same to, with what it adds."""
        places: dict[str, list[Node]] = {}
        for part in (update, body):
            for target, node in _assignments(part) if part is not None else ():
                places.setdefault(target, []).append(node)
        found = {}
        skips = body is not None and any(n.type in ("continue_statement", "goto_statement") for n in walk(body))
        for label, nodes in places.items():
            if len(nodes) != 1 or label in self.opaque:
                continue
            node = nodes[0]
            parent = node.parent
            in_body = (
                not skips
                and parent is not None
                and parent.type == "expression_statement"
                and (parent.parent == body or parent == body)
            )
            in_update = update is not None and update.start_byte <= node.start_byte < update.end_byte
            step = self.step(node, label) if in_body or in_update else None
            if step is not None and not any(n in self.loads for n in step.names):
                found[label] = step
        return found

    def counted(
        self, initializer: Node | None, condition: Node | None, update: Node | None, body: Node | None
    ) -> _Loop | None:
        """A loop over a range: its variable as a polynomial over a fresh one, with the number of turns at most."""
        if initializer is None or condition is None or update is None:
            return None
        declared = [n for n in walk(initializer) if n.type in ("init_declarator", "assignment_expression")]
        if not declared:
            return None
        for candidate in declared:
            label = spell(candidate.child_by_field_name("declarator") or candidate.child_by_field_name("left"))
            first = candidate.child_by_field_name("value") or candidate.child_by_field_name("right")
            if any(target == label for target, _ in _assignments(update)):
                if body is not None and label in _assigned(body):
                    return None
                return self.turns(label, self.polynomial(first), condition, update)
        return None

    def turns(self, label: str, start: Polynomial | None, condition: Node, update: Node) -> _Loop | None:
        """The loop whose variable starts here and changes only by `update`."""
        if not label.isidentifier() or label in self.opaque or start is None:
            return None
        change = self.change(update, label)
        if change is None or any(n in self.loads for n in start.names):
            return None
        how, step = change
        self.fresh += 1
        symbol = f"@{label}{self.fresh}"
        outer = self.scope
        self.scope = outer.fork()
        self.scope.places.pop(label, None)
        self.scope.values[label] = name(symbol)
        self.symbols[symbol] = Range(None, None, False)
        facts, complete = self.facts(condition, negated=False)
        self.scope = outer
        rising = how in ("+", "*")
        own = [f for f in facts if f[0] in (name(symbol), -name(symbol))]
        fit = [
            bound if part == name(symbol) else ONE - bound
            for part, operator, bound in own
            if ((operator == "<") == (part == name(symbol))) == rising and operator != "=="
        ]
        if not fit:
            composite = self.composite_bound(facts, symbol) if rising else None
            if composite is None:
                return None
            fit, complete = [composite], False
        bound = fit[0]
        certain = complete and len(facts) == 1
        self.bases[symbol] = self.bases_of(start, step)
        if rising:
            return self.rising(label, symbol, start, how, step, bound, certain)
        high = self.largest(start)
        low = bound if bound.never_negative else None
        if high is None or low is None:
            return None
        full = how == "-" and step == ONE and start == high and low == ZERO
        self.symbols[symbol] = Range(low, high + ONE, full, high + ONE)
        trips = ceiling(high + ONE - low, step) if how == "-" else None
        return _Loop(label, name(symbol), trips, certain)

    def composite_bound(self, facts: Iterable[Fact], symbol: str) -> Polynomial | None:
        """An upper bound of a loop's variable from a condition with other variables in it, as in `j <= i`."""
        for part, operator, bound in facts:
            if operator == ">=":
                part, operator, bound = -part, "<", ONE - bound
            if operator != "<" or part.terms.get((symbol,)) != 1:
                continue
            rest = part - name(symbol)
            if symbol in rest.names or any(n in self.loads for n in rest.names):
                continue
            low = self.smallest(rest)
            if low is not None:
                return bound - low
        return None

    def rising(
        self, label: str, symbol: str, start: Polynomial, how: str, step: Polynomial, bound: Polynomial, certain: bool
    ) -> _Loop | None:
        low = self.smallest(start)
        if low is None:
            return None
        if how == "*":
            self.symbols[symbol] = Range(low, bound, False, bound)
            return _Loop(label, name(symbol), None, certain)
        scale = _content(start, step)
        if scale > 1 and low == ZERO:
            # It counts multiples: `for (i = 4 * tid; i < n; i += 4 * threads)`.
            parts = start.divided_by(number(scale)), step.divided_by(number(scale))
            if parts[0] is not None and parts[1] is not None and self.whole_stride(parts[0], parts[1]):
                high = ceiling(bound, number(scale))
                self.symbols[symbol] = Range(ZERO, high, True, high)
                self.bases[symbol] = frozenset()
                self.stepped[symbol] = scale
                return _Loop(label, number(scale) * name(symbol), high, certain)
        full = low == ZERO and self.whole_stride(start, step)
        if full:
            # Whatever thread it is, all values are taken.
            self.bases[symbol] = frozenset()
        if not full and step != ONE:
            self.stepped[symbol] = 1
            if start.constant is not None and step.constant is not None:
                # Only every so many values are taken.
                turns = ceiling(bound - start, step)
                self.symbols[symbol] = Range(ZERO, turns, False, turns)
                self.stepped[symbol] = step.constant
                return _Loop(label, start + step * name(symbol), turns, certain)
        self.symbols[symbol] = Range(low, bound, full, bound)
        return _Loop(label, name(symbol), ceiling(bound - low, step), certain)

    def whole_stride(self, start: Polynomial, step: Polynomial) -> bool:
        """Whether all threads together take every value from 0 on, given where they start and how far they step."""
        if start.constant is not None:
            return start.constant == 0 and step == ONE
        for axis in _AXES:
            if start == name(f"gid.{axis}") and step == name(f"blockDim.{axis}") * name(f"gridDim.{axis}"):
                self.strided.add(axis)
                return True
            if start == name(f"threadIdx.{axis}") and step == name(f"blockDim.{axis}"):
                return True
            if start == name(f"blockIdx.{axis}") and step == name(f"gridDim.{axis}"):
                self.strided.add(axis)
                return True
        flat = name("threadIdx.x") + name("threadIdx.y") * name("blockDim.x")
        if start == flat and step == name("blockDim.x") * name("blockDim.y"):
            return True
        if len(start.terms) == 1 and len(next(iter(start.terms))) == 1 and start.constant is None:
            ((monomial, scale),) = start.terms.items()
            range_ = self.range_of(monomial[0])
            return scale == 1 and range_.full and range_.low == ZERO and range_.high == step and varies(monomial[0])
        return False

    def change(self, update: Node, label: str) -> tuple[str, Polynomial] | None:
        """How the update of a loop changes its variable: `+`, `-`, `*` or `/` and by what."""
        nodes = [node for target, node in _assignments(update) if target == label]
        if len(nodes) != 1:
            return None
        node = nodes[0]
        if node.type == "update_expression":
            return ("+" if "++" in spell(node) else "-"), ONE
        right = node.child_by_field_name("right")
        operator = spell(node.child_by_field_name("operator"))
        if operator == "-=":
            step = self.polynomial(right)
            return ("-", step) if step is not None and step.never_negative and step.terms else None
        if operator in ("*=", "<<=", "/=", ">>="):
            factor = self.polynomial(right)
            if factor is None or factor.constant is None or factor.constant < (2 if operator in ("*=", "/=") else 1):
                return None
            return ("*" if operator in ("*=", "<<=") else "/"), factor
        added = self.step(node, label)
        return None if added is None else ("+", added)

    def step(self, node: Node, label: str) -> Polynomial | None:
        """What an assignment adds to a name; never negative."""
        if node.type == "update_expression":
            return ONE if "++" in spell(node) else None
        right = node.child_by_field_name("right")
        if right is None:
            return None
        operator = spell(node.child_by_field_name("operator"))
        if operator == "+=":
            step = self.polynomial(right)
        elif operator == "=":
            outer = self.scope
            self.scope = outer.fork()
            self.scope.values[label] = name("@step")
            self.scope.places.pop(label, None)
            whole = self.polynomial(right)
            self.scope = outer
            step = None if whole is None else whole - name("@step")
            if step is not None and "@step" in step.names:
                return None
        else:
            return None
        return step if step is not None and step.never_negative and step.terms else None

    # Expressions

    def expression(self, node: Node | None) -> None:
        """Record every access in an expression."""
        if node is None:
            return
        self.left -= 1
        if self.left <= 0:
            return
        if node.type in _ARITHMETIC and not self.quiet:
            polynomial = self.polynomial(node)
            self.note_threads(polynomial)
            self.quiet = polynomial is not None
            self.parts(node)
            self.quiet = False
        else:
            self.parts(node)

    def note_threads(self, polynomial: Polynomial | None) -> None:
        """Note thread indices that are used by themselves."""
        if polynomial is not None:
            self.thread_axes |= {label[-1] for label in self.bases_of(polynomial) if label.startswith("threadIdx.")}

    def parts(self, node: Node) -> None:
        match node.type:
            case "assignment_expression":
                self.assignment(node)
            case "update_expression":
                self.update(node)
            case "subscript_expression" | "pointer_expression" | "field_expression":
                if not self.memory(node, loads=True, stores=False):
                    argument = node.child_by_field_name("argument")
                    if self.place(node) is not None:
                        # An address, or a row: whoever gets it may write there.
                        self.escape(node)
                        return
                    if node.type == "pointer_expression" and argument is not None and spell(node).startswith("&"):
                        self.forget([spell(argument)] if argument.type == "identifier" else [])
                    for child in named(node):
                        self.expression(child)
            case "call_expression":
                self.call(node)
            case "conditional_expression":
                self.conditional(node)
            case "binary_expression" if spell(node.child_by_field_name("operator")) in ("&&", "||"):
                self.short_circuit(node)
            case "binary_expression" if self.compared(node) is not None:
                for side in (node.child_by_field_name("left"), node.child_by_field_name("right")):
                    self.visit_place(side)
            case "unary_expression" if self.place(node.child_by_field_name("argument")) is not None:
                self.visit_place(node.child_by_field_name("argument"))
            case "identifier":
                self.identifier(node)
            case "sizeof_expression" | "comment":
                pass
            case "lambda_expression":
                for label, place in self.scope.places.items():
                    if any(spell(inner) == label for inner in walk(node)):
                        self.unsure[place.buffer] = "a lambda uses it"
            case "gnu_asm_expression":
                self.assembly(node)
            case _:
                for child in named(node):
                    self.expression(child)

    def compared(self, node: Node) -> bool | None:
        """Whether `p != nullptr` and the like asks if a pointer is there; None where it is another question."""
        operator = spell(node.child_by_field_name("operator"))
        sides = [self.unwrapped(node.child_by_field_name(side)) for side in ("left", "right")]
        nulls = [side is not None and spell(side) in ("nullptr", "NULL", "0") for side in sides]
        places = [self.place(side) is not None for side in sides]
        if operator not in ("==", "!=") or sum(nulls) != 1 or sum(places) != 1:
            return None
        return operator == "!="

    def tests(self, condition: Node | None) -> None:
        """Read a condition: a pointer by itself asks whether it is there."""
        inner = self.unwrapped(condition)
        if inner is not None and inner.type == "identifier" and self.place(inner) is not None:
            return
        self.expression(inner)

    def conditional(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        self.tests(condition)
        for part, negated in (
            (node.child_by_field_name("consequence"), False),
            (node.child_by_field_name("alternative"), True),
        ):
            facts, certain = self.facts(condition, negated=negated)
            self.within(facts, certain, _later(self.expression, part))

    def short_circuit(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        self.expression(left)
        facts, certain = self.facts(left, negated=spell(node.child_by_field_name("operator")) == "||")
        self.take(self.within(facts, certain, lambda: self.expression(right)))

    def identifier(self, node: Node) -> None:
        label = spell(node)
        place = self.scope.places.get(label)
        if place is not None:
            self.unsure.setdefault(place.buffer, "it is passed on as a pointer")
            return
        place = self.scope.places.get("&" + label)
        if place is not None:
            self.record(place, loads=True, stores=False)

    def assignment(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = spell(node.child_by_field_name("operator"))
        compound = operator != "="
        label = spell(left) if left is not None and left.type == "identifier" else ""
        if label and "&" + label not in self.scope.places:
            self.assign_local(label, operator, node, right)
            return
        self.expression(right)
        if not self.memory(left, loads=compound, stores=True):
            self.expression(left)

    def assign_local(self, label: str, operator: str, node: Node, right: Node | None) -> None:
        place = self.scope.places.get(label)
        if operator == "=":
            self.vectors.pop(label, None)
            target = self.place(right) if right is not None else None
            if target is not None and label not in self.opaque:
                self.visit_place(right)
                self.scope.places[label] = target
                self.scope.values[label] = None
                return
            known = self.polynomial(right)
            self.expression(right)
            if known is None and right is not None:
                known = self.result_of(right)
            self.flows(label, right)
            self.scope.places.pop(label, None)
            self.scope.tests.pop(label, None)
            integer = label in self.scope.integers and label not in self.opaque
            self.scope.values[label] = known if integer else None
            return
        amount = self.polynomial(right)
        self.expression(right)
        self.flows(label, right)
        if place is not None:
            sign = {"+=": ONE, "-=": -ONE}.get(operator)
            self.scope.places[label] = self.moved(place, None if sign is None or amount is None else sign * amount)
            return
        old = self.of_name(label)
        if old is None or amount is None:
            self.scope.values[label] = None
        else:
            self.scope.values[label] = self.combined(operator[:-1], old, amount)

    def update(self, node: Node) -> None:
        target = node.child_by_field_name("argument")
        label = spell(target) if target is not None and target.type == "identifier" else ""
        by = ONE if "++" in spell(node) else -ONE
        if label in self.scope.places:
            self.scope.places[label] = self.moved(self.scope.places[label], by)
        elif label and "&" + label not in self.scope.places:
            old = self.of_name(label)
            self.scope.values[label] = None if old is None else old + by
        elif not self.memory(target, loads=True, stores=True):
            self.expression(target)

    def assembly(self, node: Node) -> None:
        """Inline assembly: copies from a parameter's memory are known, any other use of a pointer is not."""
        code = spell(node.child_by_field_name("assembly_code"))
        operands = [n for n in walk(node) if n.type == "gnu_asm_input_operand"]
        constants = [self.polynomial(n.child_by_field_name("value")) for n in operands
                     if "n" in spell(n.child_by_field_name("constraint"))]  # fmt: skip
        copies = "cp.async" in code and "bulk" not in code
        width = next((c.constant for c in constants if c is not None and c.constant in (4, 8, 16)), 16)
        for operand in walk(node):
            if operand.type not in ("gnu_asm_input_operand", "gnu_asm_output_operand"):
                continue
            value = operand.child_by_field_name("value")
            place = self.place(value) if value is not None else None
            if place is None or value is None:
                if operand.type == "gnu_asm_output_operand" and value is not None and value.type == "identifier":
                    self.forget([spell(value)])
                else:
                    self.expression(value)
            elif copies:
                self.record(self.recast(place, bytes_=width), loads=True, stores=False)
                self.visit_place(value)
            else:
                self.unsure.setdefault(place.buffer, "inline assembly uses it")

    # Calls

    def call(self, node: Node) -> None:
        callee = node.child_by_field_name("function")
        function = _function_name(callee)
        actual = _arguments(node)
        rest = actual
        place = self.place(actual[0]) if actual and function in _ATOMICS | _LOADS | _STORES else None
        if place is not None:
            atomic = function if function in _ATOMICS else None
            if atomic is not None and place.recast:
                self.unsure.setdefault(place.buffer, "it is used as another type")
            self.record(place, loads=function not in _STORES, stores=function not in _LOADS, atomic=atomic)
            self.visit_place(actual[0])
            rest = actual[1:]
        elif self.group_call(callee, function):
            pass
        elif function in ("memcpy_async", "memcpy", "__pipeline_memcpy_async") and self.copy(actual):
            return
        elif function in ("load_matrix_sync", "store_matrix_sync") and self.matrix(function, actual):
            return
        elif (target := self.callee(callee, function, actual)) is not None:
            self.enter(node, target, actual)
            return
        elif function in _CASTS and len(actual) == 1 and self.place(actual[0]) is not None:
            self.escape(actual[0])
            return
        elif function in ("swap", "exchange") or (function in self.callees and function not in self.entered):
            # By reference, as far as anyone can see.
            for argument in actual:
                if (element := self.element(argument)) is not None:
                    self.record(element, loads=True, stores=True)
                    self.unsure.setdefault(element.buffer, "it is passed on")
            self.forget({spell(a) for a in actual if a.type == "identifier"} & self.scope.values.keys())
        elif not function.startswith("__") and function not in _HARMLESS:
            # It may take a reference.
            words = {spell(argument) for argument in actual if argument.type == "identifier"}
            self.forget(words & self.scope.values.keys())
        for argument in rest:
            self.expression(argument)
        if callee is not None and callee.type not in ("identifier", "qualified_identifier", "template_function"):
            self.expression(callee)

    def escape(self, node: Node) -> None:
        """A pointer that goes where it is not followed."""
        place = self.place(node)
        if place is not None:
            self.unsure.setdefault(place.buffer, "it is passed on as a pointer")
        self.visit_place(node)

    def group_call(self, callee: Node | None, function: str) -> bool:
        if function in ("this_grid",):
            return True
        if callee is not None and callee.type == "field_expression" and function == "sync":
            base = self.group(callee.child_by_field_name("argument"))
            if base is not None and base.kind == "grid":
                self.whole_grid = True
            return base is not None
        return False

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

    def enter(self, node: Node, target: Callee, actual: list[Node]) -> None:
        """Read a function of the text with the arguments of one call; what it returns is left in `results`."""
        body = body_tree(_plain_groups(expanded(target.body, self.context.macros)))
        if body is None or body.has_error:
            for argument in actual:
                self.expression(argument)
            return
        scope = _Scope(ranges=dict(self.scope.ranges), guards=self.scope.guards, certain=self.scope.certain)
        for parameter, argument in zip(target.parameters, actual, strict=True):
            place = self.place(argument) if parameter.pointer else None
            reference = "&" in parameter.spelling
            if reference and place is None and (place := self.element(argument)) is not None:
                scope.places["&" + parameter.name] = place
                self.visit_place(argument)
                continue
            if reference and "const" not in parameter.spelling and argument.type == "identifier":
                self.expression(argument)
                self.forget([spell(argument)])
                continue
            if place is not None:
                scope.places[parameter.name] = place
                self.visit_place(argument)
                continue
            group = self.group(argument)
            if group is not None:
                scope.groups[parameter.name] = group
                continue
            value = self.polynomial(argument)
            outer, self.quiet = self.quiet, self.quiet or value is not None
            self.expression(argument)
            self.quiet = outer
            integer = not parameter.pointer and resolved_type(parameter.element, self.types) in _WIDE
            scope.values[parameter.name] = value if integer else None
            if integer:
                scope.integers.add(parameter.name)
        for label, text in zip(target.template, _template_arguments(node), strict=False):
            scope.values[label] = self.template_value(text)
        for label in target.template:
            scope.values.setdefault(label, None)
        outer_scope, outer_opaque, outer_returned = self.scope, self.opaque, self.returned
        self.scope, self.opaque, self.returned = scope, _opaque(body), []
        self.entered.append(target.name)
        self.block(body)
        self.entered.pop()
        returned = self.returned
        self.scope, self.opaque, self.returned = outer_scope, outer_opaque, outer_returned
        self.results[node.id] = returned[0] if len(returned) == 1 else None

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

    def copy(self, actual: list[Node]) -> bool:
        """`memcpy_async(group, to, from, bytes)` and its kin."""
        places = [(node, self.place(node)) for node in actual]
        first = next((number_ for number_, (_, place) in enumerate(places) if place is not None), None)
        if first is None or len(actual) < 3:
            return False
        target = 1 if self.group(actual[0]) is not None else 0
        if len(actual) < target + 3 or sum(place is not None for _, place in places) > 2:
            return False
        amount = self.polynomial(actual[target + 2])
        for place_at, loads in ((target, False), (target + 1, True)):
            node, place = places[place_at]
            if place is None:
                self.expression(node)
                continue
            width = size_of(self.elements[place.buffer], self.types)
            count = amount.divided_by(number(width)) if amount is not None and width else None
            if count is not None and place.offset is not None:
                inside = self.symbol(Range(ZERO, count, True, count), "copied")
                self.record(evolve(place, offset=place.offset + inside, unit=1), loads=loads, stores=not loads)
            else:
                self.record(evolve(place, offset=None), loads=loads, stores=not loads)
            self.visit_place(node)
        for node in actual[target + 2 :]:
            self.expression(node)
        return True

    def matrix(self, function: str, actual: list[Node]) -> bool:
        """A tile that `wmma` loads or stores: rows with a stride."""
        loads = function.startswith("load")
        if len(actual) < 3:
            return False
        fragment, pointer = (actual[0], actual[1]) if loads else (actual[1], actual[0])
        while (
            fragment.type == "subscript_expression" and (inner := fragment.child_by_field_name("argument")) is not None
        ):
            fragment = inner
        place, stride = self.place(pointer), self.polynomial(actual[2])
        if place is None:
            return False
        shape = self.fragments.get(spell(fragment))
        if shape is not None and shape[0] == "accumulator":
            by_row = "row_major" in spell(actual[3]) if len(actual) > 3 else None
        else:
            by_row = None if shape is None else shape[3] == "row_major"
        offset = None
        if (
            shape is not None
            and stride is not None
            and by_row is not None
            and place.offset is not None
            and place.unit == 1
        ):
            rows, columns = (number(shape[1]), number(shape[2])) if by_row else (number(shape[2]), number(shape[1]))
            row = self.symbol(Range(ZERO, rows, True, rows), "row")
            column = self.symbol(Range(ZERO, columns, True, columns), "column")
            offset = place.offset + row * stride + column
        self.record(evolve(place, offset=offset), loads=loads, stores=not loads)
        self.visit_place(pointer)
        for node in actual[2:]:
            self.expression(node)
        return True

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
        function = _function_name(node.child_by_field_name("function"))
        actual = _arguments(node)
        if function in _CASTS and len(actual) == 1:
            texts = _template_arguments(node)
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
            for argument in _arguments(node):
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
            actual = _arguments(node)
            if _function_name(node.child_by_field_name("function")) not in _LOADS or not actual:
                return None
            return self.place(actual[0])
        if node.type == "subscript_expression" or (node.type == "pointer_expression" and spell(node).startswith("*")):
            return self.element(node)
        return None

    # Polynomials

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
                for axis in _AXES:
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
        if inner is None or resolved_type(kind, self.types) in _WIDE:
            return inner
        narrow = inner.constant is not None and 0 <= inner.constant < 128
        return inner if narrow and resolved_type(kind, self.types) in INTEGERS else None

    def of_field(self, node: Node) -> Polynomial | None:
        text = spell(node).replace(" ", "")
        base, _, member = text.partition(".")
        if base in ("threadIdx", "blockIdx", "blockDim", "gridDim") and member in _AXES:
            return name(text)
        if base in self.vectors and member in ("x", "y", "z", "w"):
            return self.of_load(Place(self.vectors[base], ZERO))
        argument = node.child_by_field_name("argument")
        if argument is not None and argument.type == "call_expression" and member:
            callee = argument.child_by_field_name("function")
            function = _function_name(callee)
            axis = spell(node.child_by_field_name("field"))
            if callee is not None and callee.type == "field_expression" and axis in _AXES:
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

    def group(self, node: Node | None) -> _Group | None:
        """The cooperative group that an expression is."""
        node = self.unwrapped(node) or node
        if node is None:
            return None
        if node.type == "identifier":
            return self.scope.groups.get(spell(node))
        if node.type != "call_expression":
            return None
        function = _function_name(node.child_by_field_name("function"))
        if function == "this_thread_block":
            return _Group("block")
        if function == "this_grid":
            return _Group("grid")
        if function == "tiled_partition":
            texts, actual = _template_arguments(node), _arguments(node)
            size = self.template_value(texts[0]) if texts else self.polynomial(actual[1]) if len(actual) > 1 else None
            width = size.constant if size is not None else None
            base = self.group(actual[0]) if actual else None
            return _Group("tile", width) if width and base is not None and base.kind in ("block", "tile") else None
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
        function = _function_name(callee)
        nodes = _arguments(node)
        if callee is not None and callee.type == "field_expression":
            return self.of_group(callee, function)
        if function in _CASTS:
            texts = _template_arguments(node)
            return self.converted(nodes[0], texts[0]) if texts and len(nodes) == 1 else None
        if callee is not None and len(nodes) == 1 and resolved_type(spell(callee), self.types) in _WIDE:
            return self._polynomial(nodes[0])
        actual = [self._polynomial(argument) for argument in nodes]
        if function in ("__umul24", "__mul24") and len(actual) == 2 and actual[0] and actual[1]:
            return actual[0] * actual[1]
        if function.lower() in _CEILINGS and len(actual) == 2 and actual[0] is not None and actual[1] is not None:
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
        for axis in _AXES:
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


_HARMLESS = {
    "min", "max", "fmin", "fmax", "fminf", "fmaxf", "abs", "fabs", "fabsf", "sqrt", "sqrtf", "rsqrtf", "exp", "expf", "log",
    "logf", "pow", "powf", "sin", "cos", "sinf", "cosf", "tanhf", "tanh", "floorf", "ceilf", "floor", "ceil", "printf",
    "assert", "make_float2", "make_float4", "make_int2", "make_int4", "make_uint2", "make_uint4", "int", "float",
    "static_cast", "reinterpret_cast", "this_grid", "this_thread_block", "tiled_partition", *_CEILINGS, *_ATOMICS,
}  # fmt: skip
"""Functions that change no argument."""


def _later(work: Callable[[Node], None], node: Node | None) -> Callable[[], None]:
    return lambda: work(node) if node is not None else None


def _plain_groups(text: str) -> str:
    """Declarations of cooperative groups as `auto`, whose template arguments the grammar takes for comparisons."""
    if "cooperative_groups" not in text and "cg" not in text:
        return text
    return _GROUP_LOCAL.sub(lambda m: f"auto {m[1]} =" if m[2] == "=" else f"auto {m[1]} = (", text)


def _declared_name(declarator: Node) -> str:
    """Of `tile[SIZE][SIZE + 1]` the first identifier is the name, the others are in its sizes."""
    return next((spell(part) for part in walk(declarator) if part.type == "identifier"), "")


def _function_name(node: Node | None) -> str:
    """The last part of a callee's name, without namespaces, objects and template arguments."""
    if node is None:
        return ""
    match node.type:
        case "field_expression":
            return _function_name(node.child_by_field_name("field"))
        case "qualified_identifier" | "template_function" | "template_method":
            return _function_name(node.child_by_field_name("name"))
        case _:
            return spell(node)


def _arguments(node: Node) -> list[Node]:
    arguments = node.child_by_field_name("arguments")
    return named(arguments) if arguments is not None else []


def _template_arguments(node: Node) -> list[str]:
    """The template arguments of a call, as written."""
    inner = node.child_by_field_name("function")
    while inner is not None and inner.type in ("qualified_identifier", "field_expression"):
        inner = inner.child_by_field_name("name") or inner.child_by_field_name("field")
    arguments = inner.child_by_field_name("arguments") if inner is not None else None
    return [spell(child) for child in named(arguments)] if arguments is not None else []


def _assignments(node: Node) -> Iterator[tuple[str, Node]]:
    """The assignments to names within a node."""
    for inner in walk(node):
        target: Node | None = None
        if inner.type == "assignment_expression":
            target = inner.child_by_field_name("left")
        elif inner.type == "update_expression":
            target = inner.child_by_field_name("argument")
        if target is not None and target.type == "identifier":
            yield spell(target), inner


def _assigned(node: Node) -> set[str]:
    return {label for label, _ in _assignments(node)}


def _opaque(body: Node) -> set[str]:
    """Locals that are changed through a pointer or by a lambda."""
    found: set[str] = set()
    for node in walk(body):
        if node.type == "pointer_expression" and spell(node).startswith("&"):
            argument = node.child_by_field_name("argument")
            if argument is not None and argument.type == "identifier":
                found.add(spell(argument))
        elif node.type == "lambda_expression":
            found |= _assigned(node)
    return found


def _jumps(body: Node) -> bool:
    """Whether an iteration may end the loop early."""
    return any(node.type in ("break_statement", "return_statement", "goto_statement") for node in walk(body))


def _greater(first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
    if first is None or second is None:
        return None
    if (first - second).never_negative_for_sizes:
        return first
    return second if (second - first).never_negative_for_sizes else None


def _agreed(steps: Mapping[str, set[int]]) -> dict[str, int]:
    """The one step of each axis; 0 where there are several."""
    return {axis: next(iter(found)) if len(found) == 1 else 0 for axis, found in steps.items()}


def _without_rest(bound: Polynomial) -> Polynomial:
    """The bound without a constant that a guard takes off, as in `x < width - 1`."""
    return Polynomial({m: c for m, c in bound.terms.items() if m or c > 0 or len(bound.terms) == 1})


def _content(*polynomials: Polynomial) -> int:
    """The greatest whole number that divides all coefficients."""
    return math.gcd(*(coefficient for p in polynomials for coefficient in p.terms.values()))
