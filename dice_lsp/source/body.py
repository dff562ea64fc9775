"""Reads a function's body: every access to a pointer parameter's memory, with the values that its subscript may have.

The body is walked once in the order of the text. Integer locals are polynomials over parameters and over variables that
differ from thread to thread or from iteration to iteration; pointer locals are places in a parameter's memory. Macros
are written out and device functions of the text are entered with their arguments, so that what they do with a pointer is
seen. Where two ways meet, what differs is forgotten.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from attrs import evolve, frozen
from tree_sitter import Node

from dice_lsp.records import Parameter
from dice_lsp.source.accesses import (
    INTEGERS,
    SHARED,
    Access,
    Accesses,
    Range,
    SharedArray,
    varies,
)
from dice_lsp.source.body_tree import (
    arguments,
    assigned,
    assignments,
    declared_name,
    function_name,
    jumps,
    opaque_names,
    template_arguments,
)
from dice_lsp.source.body_values import (
    AXES,
    CASTS,
    CEILINGS,
    LOADS,
    WIDE,
    Fact,
    Place,
    Scope,
    Values,
    plain_groups,
)
from dice_lsp.source.device_code import EMPTY, Callee, Context, expanded, resolved_type, size_of
from dice_lsp.source.polynomials import ONE, ZERO, Polynomial, ceiling, name, number, product
from dice_lsp.source.syntax import body_tree, named, spell, walk
from dice_lsp.source.tokens import split_top_level

_ATOMICS = {
    "atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicInc", "atomicDec", "atomicExch", "atomicCAS", "atomicAnd",
    "atomicOr", "atomicXor", "atomicAdd_block", "atomicAdd_system",
}  # fmt: skip

_STORES = {"__stcg", "__stcs", "__stwb", "__stwt"}

_ARITHMETIC = ("binary_expression", "field_expression", "identifier", "cast_expression", "unary_expression")

_HARMLESS = {
    "min", "max", "fmin", "fmax", "fminf", "fmaxf", "abs", "fabs", "fabsf", "sqrt", "sqrtf", "rsqrtf", "exp", "expf", "log",
    "logf", "pow", "powf", "sin", "cos", "sinf", "cosf", "tanhf", "tanh", "floorf", "ceilf", "floor", "ceil", "printf",
    "assert", "make_float2", "make_float4", "make_int2", "make_int4", "make_uint2", "make_uint4", "int", "float",
    "static_cast", "reinterpret_cast", "this_grid", "this_thread_block", "tiled_partition", *CEILINGS, *_ATOMICS,
}  # fmt: skip
"""Functions that change no argument."""


@frozen
class Loop:
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
        words.update(re.findall(r"[A-Za-z_]\w*", macro.body))
    for callee in context.callees:
        words.update(re.findall(r"[A-Za-z_]\w*", callee.body))
    return words


class _Analyst(Values):
    def run(self, text: str) -> Accesses:
        written = expanded(text, self.context.macros)
        body = body_tree(plain_groups(written))
        understood = body is not None and not body.has_error
        used: set[str] = set()
        if body is not None and understood:
            used = {spell(node) for node in walk(body) if node.type == "identifier"} | set(
                re.findall(r"\b[A-Za-z_]\w*", text)
            )
            self.many_dimensions = re.search(r"\b(?:threadIdx|blockDim)\s*\.\s*[yz]\b", written) is not None
            self.opaque = opaque_names(body)
            self.whole_grid = bool(used & {"cudaGridDependencySynchronize"})
            self.statement(body)
        unseen = not self.dynamic_shared and any(
            "extern" in c.body and "__shared__" in c.body for c in self.context.callees
        )
        hidden = self.context.hides_shared or unseen
        if hidden:
            # An array of which nothing is seen but that it is there.
            self.shared[SHARED] = SharedArray("", (None,), True)
        if self.left <= 0:
            self.unsure |= dict.fromkeys(self.pointers, "the body is too long to be followed")
        return Accesses(
            accesses=tuple(self.accesses), unsure=self.unsure, gathers=self.gathers, index_uses=tuple(self.index_uses),
            indices=frozenset(self.indices), axes=self.axes, block_indices=self.block_indices,
            thread_axes=frozenset(self.thread_axes), divided=frozenset(self.divided_names),
            thread_bounds=self.thread_bounds, strided=frozenset(self.strided), forced_block=self.forced,
            shared=self.shared, dynamic_shared=self.dynamic_shared or hidden, whole_grid=self.whole_grid,
            block_steps=_agreed(self.steps), flat_ranks=self.flat, understood=understood,
            empty=body is not None and not named(body), used=frozenset(used),
        )  # fmt: skip

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
                changed = assigned(node)
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
                changed = assigned(node)
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
            label = declared_name(inner)
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
            narrow = kind != "auto" and resolved_type(kind, self.types) not in WIDE
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
        if place is None or place.buffer not in self.pointers or self.elements[place.buffer] not in WIDE:
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
            rest = {label for child in named(body)[:-1] for label in assigned(child)} if body is not None else set()
            for label, update in assignments(last):
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
        self, node: Node, condition: Node | None, update: Node | None, body: Node | None, loop: Loop | None
    ) -> None:
        changed = assigned(node)
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

        surely = loop is not None and loop.certain and not (body is not None and jumps(body))
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
            for target, node in assignments(part) if part is not None else ():
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
    ) -> Loop | None:
        """A loop over a range: its variable as a polynomial over a fresh one, with the number of turns at most."""
        if initializer is None or condition is None or update is None:
            return None
        declared = [n for n in walk(initializer) if n.type in ("init_declarator", "assignment_expression")]
        if not declared:
            return None
        for candidate in declared:
            label = spell(candidate.child_by_field_name("declarator") or candidate.child_by_field_name("left"))
            first = candidate.child_by_field_name("value") or candidate.child_by_field_name("right")
            if any(target == label for target, _ in assignments(update)):
                if body is not None and label in assigned(body):
                    return None
                return self.turns(label, self.polynomial(first), condition, update)
        return None

    def turns(self, label: str, start: Polynomial | None, condition: Node, update: Node) -> Loop | None:
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
        return Loop(label, name(symbol), trips, certain)

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
    ) -> Loop | None:
        low = self.smallest(start)
        if low is None:
            return None
        if how == "*":
            self.symbols[symbol] = Range(low, bound, False, bound)
            return Loop(label, name(symbol), None, certain)
        scale = _content(start, step)
        if scale > 1 and low == ZERO:
            # It counts multiples: `for (i = 4 * tid; i < n; i += 4 * threads)`.
            parts = start.divided_by(number(scale)), step.divided_by(number(scale))
            if parts[0] is not None and parts[1] is not None and self.whole_stride(parts[0], parts[1]):
                high = ceiling(bound, number(scale))
                self.symbols[symbol] = Range(ZERO, high, True, high)
                self.bases[symbol] = frozenset()
                self.stepped[symbol] = scale
                return Loop(label, number(scale) * name(symbol), high, certain)
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
                return Loop(label, start + step * name(symbol), turns, certain)
        self.symbols[symbol] = Range(low, bound, full, bound)
        return Loop(label, name(symbol), ceiling(bound - low, step), certain)

    def whole_stride(self, start: Polynomial, step: Polynomial) -> bool:
        """Whether all threads together take every value from 0 on, given where they start and how far they step."""
        if start.constant is not None:
            return start.constant == 0 and step == ONE
        for axis in AXES:
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
        nodes = [node for target, node in assignments(update) if target == label]
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
        function = function_name(callee)
        actual = arguments(node)
        rest = actual
        place = self.place(actual[0]) if actual and function in _ATOMICS | LOADS | _STORES else None
        if place is not None:
            atomic = function if function in _ATOMICS else None
            if atomic is not None and place.recast:
                self.unsure.setdefault(place.buffer, "it is used as another type")
            self.record(place, loads=function not in _STORES, stores=function not in LOADS, atomic=atomic)
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
        elif function in CASTS and len(actual) == 1 and self.place(actual[0]) is not None:
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

    def enter(self, node: Node, target: Callee, actual: list[Node]) -> None:
        """Read a function of the text with the arguments of one call; what it returns is left in `results`."""
        body = body_tree(plain_groups(expanded(target.body, self.context.macros)))
        if body is None or body.has_error:
            for argument in actual:
                self.expression(argument)
            return
        scope = Scope(ranges=dict(self.scope.ranges), guards=self.scope.guards, certain=self.scope.certain)
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
            integer = not parameter.pointer and resolved_type(parameter.element, self.types) in WIDE
            scope.values[parameter.name] = value if integer else None
            if integer:
                scope.integers.add(parameter.name)
        for label, text in zip(target.template, template_arguments(node), strict=False):
            scope.values[label] = self.template_value(text)
        for label in target.template:
            scope.values.setdefault(label, None)
        outer_scope, outer_opaque, outer_returned = self.scope, self.opaque, self.returned
        self.scope, self.opaque, self.returned = scope, opaque_names(body), []
        self.entered.append(target.name)
        self.block(body)
        self.entered.pop()
        returned = self.returned
        self.scope, self.opaque, self.returned = outer_scope, outer_opaque, outer_returned
        self.results[node.id] = returned[0] if len(returned) == 1 else None

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


def _later(work: Callable[[Node], None], node: Node | None) -> Callable[[], None]:
    return lambda: work(node) if node is not None else None


def _agreed(steps: Mapping[str, set[int]]) -> dict[str, int]:
    """The one step of each axis; 0 where there are several."""
    return {axis: next(iter(found)) if len(found) == 1 else 0 for axis, found in steps.items()}


def _content(*polynomials: Polynomial) -> int:
    """The greatest whole number that divides all coefficients."""
    return math.gcd(*(coefficient for p in polynomials for coefficient in p.terms.values()))
