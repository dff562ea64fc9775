"""What a function does with its pointer parameters, read from its body: roles, extents, the launch it is written for.

Everything here is sound or silent. A subscript becomes a polynomial over index variables whose ranges are known from
guards and loops; the extent is the polynomial's largest value plus one. What is not understood is reported in one
sentence, and nothing is guessed from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from attrs import Factory, define, evolve, frozen
from tree_sitter import Node

from dice_lsp.records import Parameter, Role
from dice_lsp.source.expressions import ExpressionError, canonical_type, evaluate
from dice_lsp.source.polynomials import ONE, ZERO, Polynomial, name, number, product
from dice_lsp.source.syntax import body_tree, named, spell, walk

INTEGERS = {
    "int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "short", "unsigned short", "size_t",
    "int32_t", "uint32_t", "int64_t", "uint64_t", "int16_t", "uint16_t", "char", "unsigned char", "signed char", "uint8_t",
    "int8_t", "uint", "ptrdiff_t", "bool",
}  # fmt: skip
_BYTE_RANGE = {"unsigned char": 256, "uint8_t": 256, "uchar": 256}
_ATOMICS = {
    "atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicInc", "atomicDec", "atomicExch", "atomicCAS", "atomicAnd",
    "atomicOr", "atomicXor", "atomicAdd_block", "atomicAdd_system",
}  # fmt: skip
_LOADS = {"__ldg", "__ldcg", "__ldca", "__ldcs", "__ldcv", "__ldlu"}
_STORES = {"__stcg", "__stcs", "__stwb", "__stwt"}
_AXES = ("x", "y", "z")
_ARITHMETIC = ("binary_expression", "field_expression", "identifier", "cast_expression", "unary_expression")
_DECLARATORS = ("pointer_declarator", "reference_declarator", "init_declarator")


@frozen
class Range:
    """The values of an index variable: `low <= v < high`. `full`: every value is taken by some thread or iteration."""

    low: Polynomial | None
    high: Polynomial | None
    full: bool
    relaxed: Polynomial | None = None
    """`high` without a constant that a guard takes off, as in `x < width - 1`; the hull that the buffer has."""


@frozen
class Access:
    """One read or write of a pointer parameter's memory."""

    buffer: str
    stores: bool
    loads: bool
    atomic: str | None
    subscript: Polynomial | None
    """None when it is not understood."""
    ranges: Mapping[str, Range]
    certain: bool
    """It happens for all values of the ranges: no other condition decides."""


@frozen
class Accesses:
    """What one body does. Dictionaries are by parameter name."""

    accesses: tuple[Access, ...]
    unsure: Mapping[str, str]
    """Pointer parameters that escape the analysis, with the reason as a phrase."""
    gathers: Mapping[str, str]
    """Index buffer -> the buffer that its values are indices of."""
    indices: frozenset[str]
    """Integer buffers whose values decide which memory is touched in another way."""
    axes: Mapping[str, Range]
    """`gid.x` and the like -> the range that the guards leave; for a kernel."""
    block_indices: Mapping[str, Range]
    """`blockIdx.x` and the like used by themselves, e.g. one block a row."""
    thread_axes: frozenset[str]
    """Axes of `threadIdx` that are used by themselves, outside of `gid`."""
    divided: frozenset[str]
    """Scalar parameters that are divided by a constant without rounding up: the body may rely on there being no rest."""
    thread_bounds: Mapping[str, Range]
    """`threadIdx.x` and the like -> the range of a guard on it."""
    strided: frozenset[str]
    """Axes that a grid-stride loop covers, whatever the grid is."""
    forced_block: Mapping[str, int]
    """Axis -> block size that the body has built in, as in `blockIdx.x * 16 + threadIdx.x`."""
    shared: tuple[tuple[int | None, ...], ...]
    """Sizes of the static shared arrays."""
    dynamic_shared: bool
    whole_grid: bool
    """Uses a grid-wide barrier, so the grid's size matters."""
    block_sized_steps: bool
    """A loop steps through a tile in rows of the block, so the block's height is not the tile's."""
    understood: bool
    """False when the text does not parse."""
    empty: bool
    used: frozenset[str]
    """Names that occur in the body."""


@define
class _Scope:
    values: dict[str, Polynomial | None] = Factory(dict)
    ranges: dict[str, Range] = Factory(dict)
    aliases: dict[str, tuple[str, Polynomial | None]] = Factory(dict)
    certain: bool = True


@lru_cache(maxsize=512)
def _cached(
    text: str, parameters: tuple[Parameter, ...], constants: tuple[tuple[str, int], ...], is_kernel: bool
) -> Accesses:
    try:
        return _Analyst(parameters, dict(constants), is_kernel).run(text)
    except RecursionError:
        # Nested deeper than any hand writes: as good as unreadable.
        return _Analyst(parameters, dict(constants), is_kernel).run("}")


def read_accesses(
    text: str, parameters: tuple[Parameter, ...], constants: Mapping[str, int], *, is_kernel: bool
) -> Accesses:
    """What the function with this body does with its parameters; `constants` are integers that its names may stand for."""
    return _cached(text, parameters, tuple(sorted(constants.items())), is_kernel)


class _Analyst:
    def __init__(self, parameters: tuple[Parameter, ...], constants: Mapping[str, int], is_kernel: bool) -> None:
        self.pointers = {p.name: p for p in parameters if p.pointer}
        self.scalars = {p.name: p for p in parameters if not p.pointer}
        self.constants = constants
        self.is_kernel = is_kernel
        self.accesses: list[Access] = []
        self.unsure: dict[str, str] = {}
        self.gathers: dict[str, str] = {}
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
        self.shared: list[tuple[int | None, ...]] = []
        self.dynamic_shared = self.whole_grid = self.steps = False
        self.scope = _Scope()
        self.mutable: set[str] = set()
        self.fresh = 0
        self.loaded: dict[str, tuple[set[str], bool]] = {}
        """Local -> the integer buffers that its value comes from, and whether it is one loaded value, unchanged."""

    def run(self, text: str) -> Accesses:
        body = body_tree(text)
        understood = body is not None and not body.has_error
        used: set[str] = set()
        if body is not None and understood:
            used = {spell(node) for node in walk(body) if node.type == "identifier"}
            self.mutable = self.assigned_names(body)
            self.whole_grid = bool(used & {"this_grid", "grid_group", "cudaGridDependencySynchronize"})
            self.statement(body)
        return Accesses(
            tuple(self.accesses), self.unsure, self.gathers, frozenset(self.indices), self.axes, self.block_indices,
            frozenset(self.thread_axes), frozenset(self.divided_names),
            self.thread_bounds, frozenset(self.strided), self.forced, tuple(self.shared), self.dynamic_shared,
            self.whole_grid, self.steps, understood, body is not None and not named(body), frozenset(used),
        )  # fmt: skip

    def assigned_names(self, body: Node) -> set[str]:
        """Names that change after their declaration, or are declared twice, or have their address taken."""
        changed: set[str] = set()
        declared: set[str] = set(self.scalars) | set(self.pointers)
        loop_steps = {id_ for node in walk(body) if node.type == "for_statement" for id_ in self.loop_updates(node)}
        for node in walk(body):
            target: Node | None = None
            if node.type == "assignment_expression":
                target = node.child_by_field_name("left")
            elif node.type in ("update_expression", "pointer_expression"):
                operator = spell(node.child_by_field_name("operator")) or spell(node.children[0])
                if node.type == "update_expression" or operator == "&":
                    target = node.child_by_field_name("argument")
            elif node.type in ("init_declarator", "declaration", "parameter_declaration"):
                declarator = node.child_by_field_name("declarator")
                while declarator is not None and declarator.type in _DECLARATORS:
                    inner = declarator.child_by_field_name("declarator")
                    children = named(declarator)
                    declarator = inner if inner is not None else children[-1] if children else None
                if declarator is not None and declarator.type == "identifier" and node.type != "declaration":
                    label = spell(declarator)
                    # The same loop variable in one loop after another is no redefinition.
                    if label in declared and not self.in_for_header(node):
                        changed.add(label)
                    declared.add(label)
            if target is not None and target.type == "identifier" and node.id not in loop_steps:
                changed.add(spell(target))
        return changed

    def in_for_header(self, node: Node) -> bool:
        parent = node.parent
        return (
            parent is not None
            and parent.parent is not None
            and parent.parent.type == "for_statement"
            and (parent.parent.child_by_field_name("initializer") == parent)
        )

    def loop_updates(self, loop: Node) -> Iterator[int]:
        update = loop.child_by_field_name("update")
        initializer = loop.child_by_field_name("initializer")
        for part in (update, initializer):
            if part is not None:
                yield from (
                    node.id for node in walk(part) if node.type in ("update_expression", "assignment_expression")
                )

    # Statements

    @contextmanager
    def nested(self, **changes: object) -> Iterator[None]:
        outer = self.scope
        self.scope = _Scope(dict(outer.values), dict(outer.ranges), dict(outer.aliases), outer.certain)
        for key, value in changes.items():
            setattr(self.scope, key, value)
        yield
        self.scope = outer

    def statement(self, node: Node) -> None:
        match node.type:
            case "compound_statement":
                with self.nested():
                    for child in named(node):
                        self.statement(child)
                        if self.may_leave(child):
                            self.scope.certain = False
            case "declaration":
                self.declaration(node)
            case "if_statement":
                self.branch(node)
            case "for_statement":
                self.for_loop(node)
            case "while_statement" | "do_statement" | "switch_statement" | "for_range_loop":
                self.expression(node.child_by_field_name("condition"))
                with self.nested(certain=False):
                    body = node.child_by_field_name("body")
                    if body is not None:
                        self.statement(body)
            case "expression_statement":
                for child in named(node):
                    self.expression(child)
            case "return_statement" | "break_statement" | "continue_statement":
                for child in named(node):
                    self.expression(child)
                # What follows in this block is reached by no thread; what follows the block is handled by `branch`.
            case "case_statement" | "labeled_statement" | "else_clause":
                for child in named(node):
                    self.statement(child)
            case _ if node.type.startswith("preproc"):
                for child in named(node):
                    with self.nested(certain=False):
                        self.statement(child)
            case _:
                self.expression(node)

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
            if shared and inner.type == "array_declarator":
                self.shared.append(self.array_sizes(inner))
            label = spell(inner) if inner.type == "identifier" else ""
            if value is not None and not self.alias(inner, value):
                # A thread's index in a local counts where the local is used.
                understood = label not in self.mutable and self.polynomial(value) is not None
                outer, self.quiet = self.quiet, self.quiet or (understood and bool(label))
                self.expression(value)
                self.quiet = outer
            if label:
                if label in self.pointers:
                    self.unsure[label] = "its name is declared again"
                self.flows(label, value)
                integer = kind == "auto" or canonical_type(kind) in INTEGERS
                if label not in self.mutable and integer and value is not None:
                    self.scope.values[label] = self.polynomial(value)
                else:
                    self.scope.values[label] = None
            else:
                # Of `tile[SIZE][SIZE + 1]` the first identifier is the name, the others are in its sizes.
                declared = next((spell(part) for part in walk(inner) if part.type == "identifier"), "")
                self.scope.values.setdefault(declared, None)

    def alias(self, declarator: Node, value: Node) -> bool:
        """Whether a declared pointer is a place in a parameter's memory, as in `const float* row = x + r * n`."""
        if declarator.type != "pointer_declarator":
            return False
        inner = named(declarator)[-1] if named(declarator) else None
        label = spell(inner)
        if inner is None or inner.type != "identifier" or label in self.mutable or label in self.pointers:
            return False
        found = self.address(value)
        if found is None:
            return False
        buffer, index, offset = found
        if index is not None:
            for node in walk(index):
                if node.type in ("subscript_expression", "call_expression") and node.id != index.id:
                    self.expression(node)
        self.scope.aliases[label] = (buffer, offset)
        return True

    def flows(self, label: str, value: Node | None) -> None:
        """Note that the values of integer buffers reach a local."""
        sources, direct = self.sources(value) if value is not None else (set(), False)
        if sources:
            before = self.loaded.get(label)
            self.loaded[label] = (sources, direct) if before is None else (sources | before[0], False)

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
        self.expression(condition)
        test = self.unwrapped(condition)
        positive, certain = self.facts(test, negated=False)
        negative, negative_certain = self.facts(test, negated=True)
        begin = len(self.accesses)
        with self.nested():
            self.apply(positive)
            self.scope.certain = self.scope.certain and (certain or otherwise is not None)
            if then is not None:
                self.statement(then)
        middle = len(self.accesses)
        if otherwise is not None:
            with self.nested():
                self.apply(negative)
                self.statement(otherwise)
            if not (certain and negative_certain):
                self.join(begin, middle)
        elif then is not None and self.leaves(then):
            self.apply(negative)
            self.scope.certain = self.scope.certain and negative_certain

    def leaves(self, node: Node) -> bool:
        """Whether a branch always ends the thread's work on what follows."""
        if node.type in ("return_statement", "continue_statement"):
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
        ends = [inner for inner in walk(node) if inner.type in ("return_statement", "goto_statement")]
        if not ends or node.type == "return_statement":
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

    def facts(self, test: Node | None, *, negated: bool) -> tuple[list[tuple[str, str, Polynomial]], bool]:
        """Bounds that hold when a condition does (or, `negated`, does not), and whether they are all that it says.

        A bound is `(variable, "<" or ">=", polynomial)`.
        """
        test = self.unwrapped(test)
        if test is None:
            return [], False
        if test.type == "unary_expression" and spell(test.child_by_field_name("operator")) == "!":
            return self.facts(test.child_by_field_name("argument"), negated=not negated)
        if test.type != "binary_expression":
            return [], False
        operator = spell(test.child_by_field_name("operator"))
        left, right = test.child_by_field_name("left"), test.child_by_field_name("right")
        if operator == ("||" if negated else "&&"):
            first, second = self.facts(left, negated=negated), self.facts(right, negated=negated)
            return first[0] + second[0], first[1] and second[1]
        if operator == ("!=" if negated else "==") and left is not None and right is not None:
            a, b = self.polynomial(left), self.polynomial(right)
            if a is not None and b == ZERO and a.names and a == name(next(iter(a.names))) and "Idx." in str(a.names):
                return [(next(iter(a.names)), "==", ZERO)], True
            return [], False
        flip = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
        if operator not in flip or left is None or right is None:
            return [], False
        if negated:
            operator = flip[operator]
        a, b = self.polynomial(left), self.polynomial(right)
        if a is None or b is None:
            return [], False
        # Everything as `difference < 0` or `difference >= 0`.
        difference = a - b
        if operator in (">", "<="):
            difference, operator = (b - a), ("<" if operator == ">" else ">=")
        variables = [n for n in difference.names if self.is_variable(n)]
        if len(variables) != 1:
            return [], False
        variable = variables[0]
        scale = difference.terms.get((variable,), 0)
        rest = difference - Polynomial({(variable,): scale}) if scale else difference
        if abs(scale) != 1 or variable in rest.names:
            return [], False
        if scale == 1:  # v + rest < 0  is  v < -rest
            return [(variable, operator, -rest)], True
        # -v + rest < 0 is v >= rest + 1; -v + rest >= 0 is v < rest + 1.
        return [(variable, ">=" if operator == "<" else "<", rest + ONE)], True

    def is_variable(self, label: str) -> bool:
        return label in self.scope.ranges or "." in label or label.startswith("@")

    def apply(self, facts: Iterable[tuple[str, str, Polynomial]]) -> None:
        for variable, operator, bound in facts:
            if operator == "==":
                # One thread does it for all: where its index does not matter, nothing is left out.
                self.scope.ranges[variable] = Range(ZERO, ONE, True, ONE)
                continue
            old = self.scope.ranges.get(variable, Range(ZERO if "." in variable else None, None, "." in variable))
            if operator == "<":
                better = old.high is None or (old.high - bound).never_negative
                relaxed = Polynomial({m: c for m, c in bound.terms.items() if m or c > 0 or len(bound.terms) == 1})
                relaxed = old.relaxed if old.relaxed is not None and not better else relaxed
                new = evolve(old, high=bound if better else old.high, relaxed=relaxed)
            else:
                better = old.low is None or (bound - old.low).never_negative
                zero = bound.constant is not None and bound.constant <= 0 and old.low == ZERO
                new = evolve(
                    old, low=bound if better and not zero else old.low, full=old.full and (zero or old.low == bound)
                )
            if variable.startswith("threadIdx."):
                # How many values it takes is the block's affair.
                new = evolve(new, full=False)
                self.note(self.thread_bounds, variable, new)
            self.scope.ranges[variable] = new
            if variable.startswith("gid.") and self.scope.certain:
                self.note(self.axes, variable, new)
            elif variable.startswith("blockIdx."):
                self.note(self.block_indices, variable, new)

    def note(self, table: dict[str, Range], variable: str, new: Range) -> None:
        old = table.get(variable)
        if old is None or old.high is None or (new.high is not None and (new.high - old.high).never_negative):
            table[variable] = new

    def for_loop(self, node: Node) -> None:
        initializer = node.child_by_field_name("initializer")
        condition = node.child_by_field_name("condition")
        update = node.child_by_field_name("update")
        body = node.child_by_field_name("body")
        with self.nested():
            if initializer is not None:
                if initializer.type == "declaration":
                    for child in walk(initializer):
                        if child.type == "init_declarator":
                            self.expression(child.child_by_field_name("value"))
                else:
                    self.expression(initializer)
            loop = self.counted(initializer, condition, update)
            if loop is None:
                for label in self.loop_names(initializer, update):
                    self.scope.values[label] = None
                for part in (initializer, condition):
                    # Row pointers and the like: a loop over what the data say.
                    self.indices |= self.sources(part)[0] if part is not None else set()
                self.expression(condition)
                self.expression(update)
                self.scope.certain = False
            else:
                label, symbol, range_ = loop
                self.scope.values[label] = name(symbol)
                self.scope.ranges[symbol] = range_
                self.expression(condition)
            if body is not None:
                if self.jumps(body):
                    self.scope.certain = False
                self.statement(body)

    def jumps(self, body: Node) -> bool:
        """Whether an iteration may end the loop early."""
        return any(node.type in ("break_statement", "return_statement", "goto_statement") for node in walk(body))

    def loop_names(self, initializer: Node | None, update: Node | None) -> set[str]:
        names: set[str] = set()
        for part in (initializer, update):
            if part is None:
                continue
            for node in walk(part):
                if node.type in ("init_declarator", "assignment_expression", "update_expression"):
                    target = (node.child_by_field_name("declarator") or node.child_by_field_name("left")
                              or node.child_by_field_name("argument"))  # fmt: skip
                    names.add(spell(target))
        return names

    def counted(
        self, initializer: Node | None, condition: Node | None, update: Node | None
    ) -> tuple[str, str, Range] | None:
        """A loop that counts up: its variable, a fresh symbol for it, and the symbol's range."""
        if initializer is None or condition is None or update is None:
            return None
        declared = [n for n in walk(initializer) if n.type in ("init_declarator", "assignment_expression")]
        if len(declared) != 1:
            return None
        label = spell(declared[0].child_by_field_name("declarator") or declared[0].child_by_field_name("left"))
        start = self.polynomial(declared[0].child_by_field_name("value") or declared[0].child_by_field_name("right"))
        if not label.isidentifier() or label in self.mutable:
            return None
        step = self.step(update, label)
        if step is None or start is None:
            return None
        self.fresh += 1
        symbol = f"@{label}{self.fresh}"
        with self.nested():
            self.scope.values[label] = name(symbol)
            self.scope.ranges[symbol] = Range(None, None, False)
            facts, complete = self.facts(condition, negated=False)
        if not complete or len(facts) != 1 or facts[0][:2] != (symbol, "<"):
            return None
        high = facts[0][2]
        if any(self.is_variable(n) for n in high.names):
            high_bound = self.largest(high - ONE, self.scope.ranges)
            if high_bound is None:
                return None
            return (
                label,
                symbol,
                Range(self.smallest(start, self.scope.ranges), high_bound + ONE, False, high_bound + ONE),
            )
        low, full = self.start_of(start, step)
        return label, symbol, Range(low, high, full, high)

    def start_of(self, start: Polynomial, step: Polynomial) -> tuple[Polynomial | None, bool]:
        """The smallest start over all threads, and whether the loop with this step takes every value from there on."""
        if start.constant is not None:
            if step == ONE:
                return start, start.constant == 0
            self.steps = self.steps or (step.constant is not None and step.constant > 1)
            return start, False
        for axis in _AXES:
            if start == name(f"gid.{axis}") and step == name(f"blockDim.{axis}") * name(f"gridDim.{axis}"):
                self.strided.add(axis)
                return ZERO, True
            if start == name(f"threadIdx.{axis}") and step == name(f"blockDim.{axis}"):
                return ZERO, True
            if start == name(f"blockIdx.{axis}") and step == name(f"gridDim.{axis}"):
                self.strided.add(axis)
                return ZERO, True
        flat = name("threadIdx.x") + name("threadIdx.y") * name("blockDim.x")
        if start == flat and step == name("blockDim.x") * name("blockDim.y"):
            return ZERO, True
        self.steps = self.steps or (step.constant is not None and step.constant > 1)
        return self.smallest(start, self.scope.ranges), False

    def step(self, update: Node, label: str) -> Polynomial | None:
        update = self.unwrapped(update) or update
        if update.type == "update_expression" and spell(update.child_by_field_name("argument")) == label:
            return ONE if "++" in spell(update) else None
        if update.type == "assignment_expression" and spell(update.child_by_field_name("left")) == label:
            right = update.child_by_field_name("right")
            if right is None:
                return None
            operator = spell(update.child_by_field_name("operator"))
            if operator == "+=":
                step = self.polynomial(right)
            elif operator == "=":
                with self.nested():
                    self.scope.values[label] = name("@step")
                    whole = self.polynomial(right)
                step = None if whole is None else whole - name("@step")
                if step is not None and "@step" in step.names:
                    return None
            else:
                return None
            positive = step is not None and step.never_negative and bool(step.terms)
            return step if positive else None
        return None

    # Expressions

    def expression(self, node: Node | None) -> None:
        """Record every access in an expression."""
        if node is None:
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
            self.thread_axes |= {label[-1] for label in polynomial.names if label.startswith("threadIdx.")}

    def parts(self, node: Node) -> None:
        match node.type:
            case "assignment_expression":
                self.assignment(node)
            case "update_expression":
                target = node.child_by_field_name("argument")
                if not self.memory(target, loads=True, stores=True):
                    self.expression(target)
            case "subscript_expression" | "pointer_expression" | "field_expression":
                if not self.memory(node, loads=True, stores=False):
                    for child in named(node):
                        self.expression(child)
            case "call_expression":
                self.call(node)
            case "conditional_expression":
                self.conditional(node)
            case "binary_expression" if spell(node.child_by_field_name("operator")) in ("&&", "||"):
                self.short_circuit(node)
            case "identifier":
                self.identifier(node)
            case "sizeof_expression" | "comment":
                pass
            case "lambda_expression":
                for label in self.pointers:
                    if any(spell(inner) == label for inner in walk(node)):
                        self.unsure[label] = "a lambda uses it"
            case _:
                for child in named(node):
                    self.expression(child)

    def conditional(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        self.expression(condition)
        for part, negated in (
            (node.child_by_field_name("consequence"), False),
            (node.child_by_field_name("alternative"), True),
        ):
            facts, certain = self.facts(condition, negated=negated)
            with self.nested():
                self.apply(facts)
                self.scope.certain = self.scope.certain and certain
                self.expression(part)

    def short_circuit(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        self.expression(left)
        facts, certain = self.facts(left, negated=spell(node.child_by_field_name("operator")) == "||")
        with self.nested():
            self.apply(facts)
            self.scope.certain = self.scope.certain and certain
            self.expression(right)

    def identifier(self, node: Node) -> None:
        label = spell(node)
        label = self.scope.aliases[label][0] if label in self.scope.aliases else label
        if label in self.pointers and self.scope.values.get(label, ONE) is not None:
            self.unsure.setdefault(label, "it is passed on as a pointer")

    def assignment(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        compound = spell(node.child_by_field_name("operator")) != "="
        self.expression(right)
        if left is not None and left.type == "identifier":
            self.flows(spell(left), right)
        if not self.memory(left, loads=compound, stores=True):
            self.expression(left)
        if left is not None and left.type == "identifier" and spell(left) in self.pointers:
            self.unsure[spell(left)] = "it is assigned"

    def call(self, node: Node) -> None:
        function = spell(node.child_by_field_name("function")).split("<")[0].removeprefix("::")
        arguments = node.child_by_field_name("arguments")
        actual = named(arguments) if arguments is not None else []
        rest = actual
        if actual and function in _ATOMICS | _LOADS | _STORES:
            target = actual[0]
            element = self.address(target)
            if element is not None:
                buffer, subscript_node, subscript = element
                atomic = function if function in _ATOMICS else None
                self.record(buffer, subscript, subscript_node, loads=function not in _STORES, stores=function not in _LOADS,
                            atomic=atomic)  # fmt: skip
                self.expression(subscript_node)
                rest = actual[1:]
        if function in ("this_grid", "cg::this_grid", "cooperative_groups::this_grid"):
            self.whole_grid = True
        for argument in rest:
            self.expression(argument)
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type not in ("identifier", "qualified_identifier", "template_function"):
            self.expression(callee)

    def address(self, node: Node) -> tuple[str, Node | None, Polynomial | None] | None:
        """A pointer into a parameter's memory: `&x[i]`, `x + i`, `x`."""
        inner = self.unwrapped(node) or node
        if inner.type == "pointer_expression" and spell(inner).startswith("&"):
            target = inner.child_by_field_name("argument")
            while target is not None and target.type == "field_expression":
                target = target.child_by_field_name("argument")
            return self.element(target)
        return self.offset(inner)

    def offset(self, node: Node) -> tuple[str, Node | None, Polynomial | None] | None:
        node = self.unwrapped(node) or node
        if node.type == "identifier" and spell(node) in self.scope.aliases:
            buffer, offset = self.scope.aliases[spell(node)]
            return buffer, None, offset
        if node.type == "identifier" and spell(node) in self.pointers:
            return spell(node), None, ZERO
        if node.type == "binary_expression" and spell(node.child_by_field_name("operator")) == "+":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is None or right is None:
                return None
            for base, by in ((left, right), (right, left)):
                found = self.offset(base)
                if found is not None:
                    step = self.polynomial(by)
                    total = None if step is None or found[2] is None else found[2] + step
                    return found[0], node if found[1] is not None else by, total
        return None

    def element(self, node: Node | None) -> tuple[str, Node | None, Polynomial | None] | None:
        """A parameter's element: `x[i]`, `*x`, `*(x + i)`."""
        node = self.unwrapped(node) or node
        if node is None:
            return None
        if node.type == "subscript_expression":
            base = self.unwrapped(node.child_by_field_name("argument"))
            indices = node.child_by_field_name("indices")
            inside = named(indices) if indices is not None else []
            if base is None or len(inside) != 1:
                return None
            found = self.offset(base)
            if found is None:
                return None
            index = self.polynomial(inside[0])
            total = None if index is None or found[2] is None else found[2] + index
            return found[0], inside[0] if found[1] is None else node, total
        if node.type == "pointer_expression" and spell(node).startswith("*"):
            argument = node.child_by_field_name("argument")
            return self.offset(argument) if argument is not None else None
        return None

    def memory(self, node: Node | None, *, loads: bool, stores: bool) -> bool:
        """Record an access if `node` is an element of a parameter or a member of one."""
        node = self.unwrapped(node) or node
        member = False
        target = node
        while target is not None and target.type == "field_expression":
            member = True
            target = target.child_by_field_name("argument")
            target = self.unwrapped(target) or target
        if target is None:
            return False
        if target.type == "identifier" and member:
            return False
        if target.type == "pointer_expression" and spell(target).startswith("&"):
            return False
        found = self.element(target)
        if found is None:
            return False
        buffer, index, subscript = found
        if stores and member:
            # Only a part of the element is written, so it also keeps what it held.
            loads = True
        self.record(buffer, subscript, index, loads=loads, stores=stores)
        self.expression_of_index(target, index)
        return True

    def expression_of_index(self, target: Node, index: Node | None) -> None:
        """Accesses within the subscript itself."""
        if index is None:
            return
        if index.id == target.id or (index.type == "binary_expression" and target.type == "pointer_expression"):
            for child in walk(target):
                if child.id != target.id and child.type in ("subscript_expression", "call_expression"):
                    base = child.child_by_field_name("argument")
                    if base is None or self.offset(base) is None or child.id != target.id:
                        self.expression(child)
            return
        self.expression(index)

    def record(
        self, buffer: str, subscript: Polynomial | None, index: Node | None, *, loads: bool, stores: bool,
        atomic: str | None = None,
    ) -> None:  # fmt: skip
        if subscript is None and index is not None:
            self.gather(buffer, index)
        names = subscript.names if subscript is not None else frozenset()
        ranges = {n: self.range_of(n) for n in names if self.is_variable(n)}
        for label in names:
            if label.startswith("gid.") and label not in self.axes:
                self.axes[label] = self.range_of(label)
            elif label.startswith("blockIdx."):
                self.block_indices.setdefault(label, self.range_of(label))
            elif label.startswith("threadIdx."):
                self.thread_axes.add(label[-1])
        self.accesses.append(Access(buffer, stores, loads, atomic, subscript, ranges, self.scope.certain))

    def range_of(self, label: str) -> Range:
        return self.scope.ranges.get(label, Range(ZERO if "." in label else None, None, "." in label))

    def gather(self, buffer: str, index: Node) -> None:
        """A subscript that is not understood: note whose values it comes from."""
        whole = self.unwrapped(index) or index
        while whole.type == "cast_expression" and (inner := whole.child_by_field_name("value")) is not None:
            whole = self.unwrapped(inner) or inner
        sources, direct = self.sources(whole)
        for label in sources:
            if direct and self.gathers.get(label, buffer) == buffer:
                self.gathers[label] = buffer
            else:
                self.indices.add(label)

    def sources(self, node: Node) -> tuple[set[str], bool]:
        """Integer buffers whose values an expression uses, and whether it is one such value, unchanged."""
        found: set[str] = set()
        for inner in walk(node):
            if inner.type == "identifier":
                found |= self.loaded.get(spell(inner), (set(), False))[0]
            elif inner.type in ("subscript_expression", "pointer_expression", "call_expression"):
                element = self.loaded_element(inner)
                if element is not None and self.pointers[element].element in INTEGERS:
                    found.add(element)
        if node.type == "identifier":
            return self.loaded.get(spell(node), (set(), False))
        return found, len(found) == 1 and self.loaded_element(node) is not None

    def loaded_element(self, node: Node) -> str | None:
        """The parameter that `x[i]`, `*x` or `__ldg(&x[i])` loads from."""
        if node.type == "call_expression":
            arguments = node.child_by_field_name("arguments")
            actual = named(arguments) if arguments is not None else []
            if spell(node.child_by_field_name("function")) not in _LOADS or not actual:
                return None
            address = self.address(actual[0])
            return address[0] if address is not None else None
        element = self.element(node) if node.type in ("subscript_expression", "pointer_expression") else None
        return element[0] if element is not None else None

    # Polynomials

    def polynomial(self, node: Node | None) -> Polynomial | None:
        """An integer expression as a polynomial over parameters and index variables, or None."""
        result = self._polynomial(node)
        if result is None or result.too_large:
            return None
        return self.with_global_indices(result)

    def _polynomial(self, node: Node | None) -> Polynomial | None:
        node = self.unwrapped(node) or node
        if node is None:
            return None
        match node.type:
            case "number_literal":
                try:
                    return number(evaluate(spell(node)))
                except ExpressionError:
                    return None
            case "identifier":
                return self.of_name(spell(node))
            case "field_expression":
                text = spell(node).replace(" ", "")
                base, _, member = text.partition(".")
                if base in ("threadIdx", "blockIdx", "blockDim", "gridDim") and member in _AXES:
                    return name(text)
                return None
            case "cast_expression":
                return self._polynomial(node.child_by_field_name("value"))
            case "unary_expression":
                inner = self._polynomial(node.child_by_field_name("argument"))
                operator = spell(node.child_by_field_name("operator"))
                return None if inner is None else -inner if operator == "-" else inner if operator == "+" else None
            case "call_expression":
                return self.of_call(node)
            case "subscript_expression":
                found = self.element(node)
                if found is not None and (limit := _BYTE_RANGE.get(self.pointers[found[0]].element)) is not None:
                    return self.symbol(Range(ZERO, number(limit), False, number(limit)), f"{found[0]}[]")
                return None
            case "binary_expression":
                return self.of_binary(node)
            case _:
                return None

    def of_name(self, label: str) -> Polynomial | None:
        if label in self.scope.values:
            return self.scope.values[label]
        if label in self.mutable:
            return None
        if label in self.scalars:
            return name(label) if self.scalars[label].element in INTEGERS else None
        if label in self.constants:
            return number(self.constants[label])
        return name("warpSize") if label == "warpSize" else None

    def of_call(self, node: Node) -> Polynomial | None:
        function = spell(node.child_by_field_name("function"))
        arguments = node.child_by_field_name("arguments")
        actual = [self._polynomial(argument) for argument in named(arguments)] if arguments is not None else []
        if function.startswith("static_cast<") or function in (
            "int",
            "size_t",
            "unsigned",
            "long",
            "int64_t",
            "uint32_t",
        ):
            return actual[0] if len(actual) == 1 else None
        if function in ("__umul24", "__mul24", "__mul64hi") and len(actual) == 2 and actual[0] and actual[1]:
            return actual[0] * actual[1] if function != "__mul64hi" else None
        if function in ("min", "max", "std::min", "std::max") and len(actual) == 2:
            return self.clamped(function[-3:], actual[0], actual[1])
        return None

    def clamped(self, function: str, first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
        """`min` and `max` as a fresh variable between the bounds that follow from both sides."""
        if first is None or second is None:
            return None
        ranges = {n: self.range_of(n) for p in (first, second) for n in p.names if self.is_variable(n)}
        lows = [self.smallest(p, ranges) for p in (first, second)]
        highs = [self.largest(p, ranges) for p in (first, second)]
        fixed = [p for p in (first, second) if not any(self.is_variable(n) for n in p.names)]
        if function == "min":
            high = next((p for p in (*fixed, *highs) if p is not None), None)
            low = ZERO if all(b is not None and b.never_negative for b in lows) else self.index_low(first, second, lows)
            return None if high is None or low is None else self.symbol(Range(low, high + ONE, False, high + ONE))
        other = next((h for p, h in zip((first, second), highs, strict=True) if p != ZERO and h is not None), None)
        if ZERO not in (first, second) or other is None:
            return None
        # With i - 1 at most n - 2 and n at least 1, neither side is above n - 1.
        above = Polynomial({monomial: c for monomial, c in (other + ONE).terms.items() if c > 0})
        return self.symbol(Range(ZERO, above, False, above)) if above.terms else None

    def index_low(self, first: Polynomial, second: Polynomial, lows: list[Polynomial | None]) -> Polynomial | None:
        """`min(i + 1, n - 1)`: with `i` below `n` the second side is an index of the same buffer, so at least 0."""
        for side, other in ((first, second), (second, first)):
            low = lows[0] if side is first else lows[1]
            if low is not None and low.never_negative and not any(self.is_variable(n) for n in other.names):
                if (other + ONE).never_negative:
                    return ZERO
        return None

    def symbol(self, range_: Range, tag: str = "t") -> Polynomial:
        self.fresh += 1
        label = f"@{tag}{self.fresh}"
        self.scope.ranges[label] = range_
        return name(label)

    def of_binary(self, node: Node) -> Polynomial | None:
        operator = spell(node.child_by_field_name("operator"))
        left = self._polynomial(node.child_by_field_name("left"))
        right = self._polynomial(node.child_by_field_name("right"))
        if left is None or right is None:
            return None
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "<<" if right.constant is not None and 0 <= right.constant < 40:
                return left * number(1 << right.constant)
            case "/" | "%" | "&" | ">>":
                return self.divided(operator, self.with_global_indices(left), right)
            case _:
                return None

    def divided(self, operator: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
        sizes_only = not any(self.is_variable(label) for label in left.names) and () not in left.terms
        if sizes_only and (right.constant or 2) > 1 and not right.names & self.scalars.keys():
            self.divided_names |= left.names & self.scalars.keys()
        if left.constant is not None and right.constant is not None and left.constant >= 0 and right.constant > 0:
            value = {"/": left.constant // right.constant, "%": left.constant % right.constant,
                     "&": left.constant & right.constant, ">>": left.constant >> min(right.constant, 64)}[operator]  # fmt: skip
            return number(value)
        ranges = {n: self.range_of(n) for n in left.names if self.is_variable(n)}
        low = self.smallest(left, ranges)
        if low is None or not low.never_negative or any(self.is_variable(n) for n in right.names):
            return None
        if operator == "%":
            return self.symbol(Range(ZERO, right, self.is_whole(left, ranges), right))
        if operator == "/":
            top = self.largest(left, ranges)
            quotient = (top + ONE).divided_by(right) if top is not None else None
            if quotient is None:
                return None
            return self.symbol(Range(ZERO, quotient, self.is_whole(left, ranges), quotient))
        return None

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

    def smallest(self, polynomial: Polynomial, ranges: Mapping[str, Range]) -> Polynomial | None:
        return _extreme(polynomial, ranges, largest=False)

    def largest(self, polynomial: Polynomial, ranges: Mapping[str, Range]) -> Polynomial | None:
        return _extreme(polynomial, ranges, largest=True)


def _extreme(
    polynomial: Polynomial, ranges: Mapping[str, Range], *, largest: bool, relaxed: bool = False
) -> Polynomial | None:
    """A bound of a polynomial over its variables' ranges, as a polynomial over parameters, which are never negative."""
    result = ZERO
    for monomial, coefficient in polynomial.terms.items():
        term = number(coefficient)
        up = (coefficient > 0) == largest
        for factor in monomial:
            if "." not in factor and not factor.startswith("@"):
                term = term * name(factor)
                continue
            range_ = ranges.get(factor)
            if range_ is None or range_.low is None or not range_.low.never_negative:
                if not (range_ is not None and range_.low is not None and len(monomial) == 1):
                    return None
            high = range_.relaxed if relaxed and range_.relaxed is not None else range_.high
            bound = (high - ONE if high is not None else None) if up else range_.low
            if bound is None or any("." in n or n.startswith("@") for n in bound.names):
                return None
            term = term * bound
        result = result + term
    return result


@frozen
class Extent:
    """The element count of a buffer and what it is used for."""

    role: Role
    size: Polynomial | None
    reason: str = ""
    """Why there is no size, as a phrase."""
    accumulates: str | None = None
    """Name of the atomic that all stores use."""
    shape: tuple[str, ...] = ()
    """Row-major factors of the size, the slowest first, where a subscript shows them."""


def extents(accesses: Accesses, pointers: Iterable[Parameter]) -> dict[str, Extent]:
    """Role and size of each pointer parameter, as far as they are certain."""
    by_buffer: dict[str, list[Access]] = {}
    for access in accesses.accesses:
        by_buffer.setdefault(access.buffer, []).append(access)
    clean = {hull for group in by_buffer.values() for access in group
             if (hull := _size(access, relaxed=True)) is not None and hull.monomial}  # fmt: skip
    found: dict[str, Extent] = {}
    for parameter in pointers:
        group = by_buffer.get(parameter.name, [])
        stores = [access for access in group if access.stores]
        loads = [access for access in group if access.loads]
        if parameter.name in accesses.unsure:
            role = Role.IN if parameter.const else Role.IO
            found[parameter.name] = Extent(role, None, accesses.unsure[parameter.name])
            continue
        if not group:
            found[parameter.name] = Extent(Role.IN if parameter.const else Role.IO, None, "nothing uses it")
            continue
        size, reason = _joint_size(group, clean)
        role = Role.IN
        accumulates = None
        if stores:
            whole = not loads and size is not None and any(_covers(access, size) for access in stores)
            role = Role.OUT if whole else Role.IO
            atomics = {access.atomic for access in stores}
            if len(atomics) == 1:
                accumulates = next(iter(atomics))
        found[parameter.name] = Extent(role, size, reason, accumulates, _shape(group, size))
    return found


def _size(access: Access, *, relaxed: bool) -> Polynomial | None:
    if access.subscript is None:
        return None
    top = _extreme(access.subscript, access.ranges, largest=True, relaxed=relaxed)
    low = _extreme(access.subscript, access.ranges, largest=False)
    if top is None or low is None or not low.never_negative_for_sizes:
        return None
    return top + ONE


def _joint_size(group: list[Access], clean: set[Polynomial]) -> tuple[Polynomial | None, str]:
    """The smallest size that is at least that of every access."""
    sizes = []
    for access in group:
        size = _size(access, relaxed=False)
        if size is None:
            return (
                None,
                "a subscript has no known bound" if access.subscript is not None else "a subscript is not understood",
            )
        sizes.append(size)
    sizes = _without_smaller(sizes)
    hulls = [hull for access in group if (hull := _size(access, relaxed=True)) is not None]
    options = [*sizes, *_without_smaller(hulls), *sorted(clean, key=Polynomial.spelled)]
    enough = [option for option in options if all((option - size).never_negative_for_sizes for size in sizes)]
    enough = [o for o in enough if o.monomial] or [o for o in enough if o.never_negative] or enough
    if not enough:
        return None, "its subscripts have no common bound"
    best = enough[0]
    for option in enough[1:]:
        if (best - option).never_negative_for_sizes:
            best = option
    return best, ""


def _without_smaller(sizes: list[Polynomial]) -> list[Polynomial]:
    """Of sizes that differ in their constant alone, the largest: unrolled code has hundreds of them."""
    largest: dict[frozenset[tuple[tuple[str, ...], int]], Polynomial] = {}
    for size in sizes:
        rest = frozenset(item for item in size.terms.items() if item[0] != ())
        known = largest.get(rest)
        if known is None or size.terms.get((), 0) > known.terms.get((), 0):
            largest[rest] = size
    return list(largest.values())


def _shape(group: list[Access], size: Polynomial | None) -> tuple[str, ...]:
    """The sizes whose product is `size`, in the order in which a row-major subscript has them."""
    for access in group:
        if size is None or access.subscript is None or any(r.high is None for r in access.ranges.values()):
            continue
        terms = [(m, [n for n in m if n in access.ranges]) for m in access.subscript.terms]
        indexed = sorted(((len(m), v[0]) for m, v in terms if len(v) == 1), reverse=True)
        highs = [access.ranges[v].relaxed or access.ranges[v].high for _, v in indexed]
        if len(highs) > 1 and product(h for h in highs if h is not None) == size:
            return tuple(high.spelled() for high in highs if high is not None)
    return ()


def _covers(access: Access, size: Polynomial) -> bool:
    """Whether the stores of one access write each element of the buffer: a mixed-radix subscript over full ranges."""
    if not access.certain or access.subscript is None or not access.subscript.never_negative:
        return False
    if access.subscript.constant is not None:
        return size == access.subscript + ONE == ONE
    if any(not range_.full or range_.low != ZERO or range_.high is None for range_ in access.ranges.values()):
        return False
    if any(len([n for n in monomial if n in access.ranges]) > 1 for monomial in access.subscript.terms):
        return False
    highs = [range_.high for range_ in access.ranges.values() if range_.high is not None]
    return _size(access, relaxed=False) == size == product(highs)
