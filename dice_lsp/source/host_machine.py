"""The state of a program whose host code is interpreted: its memory, its types, its paths and what was found so far.

An expression may hold a lambda, and a statement an expression, so each part of the interpreter needs the others. The parts
are a chain of classes, each in a file that builds on the one before: `host_machine`, `host_variables`, `host_names`,
`host_expressions`, `host_launches`, `host_functions`, `host_statements`, `host_entries`. What a part needs of a later one
is declared here as an abstract method; libraries are told of no other class than this.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from dice_lsp.source.expressions import SIZEOF, canonical_type
from dice_lsp.source.host_references import HostReference, Traffic
from dice_lsp.source.host_tree import FileScope, Kind, Record, Tree
from dice_lsp.source.host_values import (
    NOTHING,
    Array,
    FunctionName,
    Lambda,
    Number,
    Spot,
    Struct,
    Term,
    Thing,
    Unknown,
    Value,
    build,
    common_type,
    truth,
    unknown_term,
)
from dice_lsp.source.preprocess import HostText

MAX_STEPS = 16_000
"""Statements and expressions of one entry."""
MAX_CALLS = 24
MAX_TURNS = 64
"""Turns of a loop that are followed when it starts kernels."""
FEW_TURNS = 12
"""Turns of any other loop."""
IDLE_TURNS = 3
"""Turns of a loop that start no other kernel than the turns before, after which it is not followed further."""
MAX_LAUNCHES = 2000
MAX_CONDITIONS = 120
DIM3 = ("x", "y", "z")


@frozen(eq=False)
class HostLaunch:
    """One launch that the program does."""

    kernel: str
    """Name, without namespaces."""
    template: tuple[str, ...] | None
    """The template arguments as written, the names of enclosing templates replaced; None where there are none."""
    grid: tuple[Number, Number, Number] | None
    block: tuple[Number, Number, Number] | None
    smem: Number | None
    arguments: tuple[Value, ...] | None
    """None where they are handed over in a way that is not understood."""
    path: str
    offset: int
    """Where in the text of `path` it stands."""
    entry: str
    """The function that the interpreter started at."""
    certain: bool
    """Whether the program does it, with these values, when it is started without arguments."""
    conditions: tuple[tuple[Term, bool], ...]
    """What was asked on the way, and the answers: asserts, guards, the branches taken."""
    reached: bool = True
    """False when the function around it was entered although something calls it."""
    from_main: bool = True
    """Whether the interpreter came here from `main`."""
    line: int | None = None
    """The line (from 1) where `path` is another file than the kernel's."""
    references: tuple[HostReference, ...] = ()
    """Calls of CPU functions whose results the program compares with the launch's."""


@frozen(eq=False)
class Unit:
    """One translation unit: a source file with its headers."""

    path: str
    text: HostText
    scope: FileScope


class State:
    """What changes as the program runs; copied where its paths part."""

    __slots__ = ("cells", "conditions", "sure")

    def __init__(self, cells: dict[int, Value], conditions: tuple[tuple[Term, bool], ...], sure: bool) -> None:
        self.cells, self.conditions, self.sure = cells, conditions, sure

    def copy(self) -> "State":
        return State(dict(self.cells), self.conditions, self.sure)


class Frame:
    """One call of a function."""

    def __init__(self, unit: Unit, name: str) -> None:
        self.unit, self.name = unit, name
        self.names: dict[str, Spot] = {}
        self.types: dict[str, str] = {}
        self.aliases: dict[str, Kind] = {}
        self.records: dict[str, Record] = {}
        self.returns: list[tuple[State, Value]] = []
        self.breaks: list[list[State]] = []
        self.continues: list[list[State]] = []
        self.this: Spot | None = None
        self.record: str | None = None


class OutOfBudget(Exception):
    """The program is longer than anyone wants to wait for."""


class Machine(ABC):
    """Holds one program while it is interpreted. Libraries may use `free`, `run`, `write`, `read`, `resolve`."""

    def __init__(self, units: Sequence[Unit], kernels: frozenset[str], launching: frozenset[str]) -> None:
        self.units = units
        self.kernels = kernels
        self.launching = launching
        """Functions of the program that start a kernel, directly or not."""
        self.launches: list[HostLaunch] = []
        self.seen: set[object] = set()
        self.traffic = Traffic()
        self.started: set[str] = set()
        """Kernels with a launch."""
        self.total_steps = 0
        self.state: State | None = None
        self.frames: list[Frame] = []
        self.labels: dict[int, str] = {}
        self.kinds: dict[int, Kind] = {}
        self.globals: dict[tuple[int, str], Spot] = {}
        self.constants: dict[tuple[int, str], Number] = {}
        self.next_cell = 0
        self.steps = 0
        self.entry = ""
        self.from_main = False
        self.reached = True
        self.given: Mapping[str, Mapping[str, object]] = {}
        """Function -> parameter -> what a program in Python passes, for libraries."""
        self.entered: set[tuple[int, int]] = set()
        """Bodies that have been run."""

    @abstractmethod
    def evaluate(self, tree: Tree) -> Value:
        """The value of an expression; what it does to variables is done."""

    @abstractmethod
    def spot(self, tree: Tree) -> Spot | None:
        """The place that an expression names, if it names one."""

    @abstractmethod
    def lookup(self, name: str) -> Value:
        """The value that a name stands for."""

    @abstractmethod
    def call_expression(self, tree: Tree) -> Value:
        """A call as it is written: of a function, a method, a lambda or a kernel."""

    @abstractmethod
    def call_named(
        self,
        name: str,
        template: tuple[str, ...],
        values: tuple[Value, ...] | None,
        listed: Tree | None,
        tree: Tree | None = None,
    ) -> Value:
        """Call a function by name, with values or with the trees of its arguments."""

    @abstractmethod
    def run(self, function: Value, arguments: tuple[Value, ...] = (), types: Mapping[str, str] | None = None) -> Value:
        """Call a lambda or a function, with these names for types."""

    @abstractmethod
    def statement(self, tree: Tree) -> None:
        """Run a statement."""

    @abstractmethod
    def block(self, tree: Tree) -> None:
        """A compound statement, in a scope of its own."""

    def tick(self) -> None:
        self.steps += 1
        self.total_steps += 1
        if self.steps > MAX_STEPS or len(self.launches) > MAX_LAUNCHES:
            raise OutOfBudget

    def free(self, name: str, ctype: str = "int") -> Number:
        """A size that may be anything."""
        return Number(unknown_term(name, size=True), ctype)

    def note(self, kind: str, name: str, values: tuple[Value, ...]) -> None:
        """A launch or a call, for `host_references`."""
        if self.from_main and self.state is not None:
            self.traffic.add(kind, name, values, self.state.conditions)

    def conditions(self) -> tuple[tuple[Term, bool], ...]:
        """What was asked on the way here, and the answers."""
        return self.state.conditions if self.state is not None else ()

    def unknown(self, name: str, reason: str, ctype: str = "int") -> Number:
        """A number that only the run decides."""
        return Number(unknown_term(name, reason), ctype)

    def new(self, label: str, kind: Kind, value: Value) -> Spot:
        """A variable."""
        self.next_cell += 1
        cell = self.next_cell
        self.labels[cell], self.kinds[cell] = label, kind
        if self.state is not None:
            self.state.cells[cell] = value
        return Spot(cell)

    def read(self, spot: Spot) -> Value:
        if self.state is None:
            return NOTHING
        value: Value = self.state.cells.get(spot.cell, NOTHING)
        for part in spot.path:
            value = self.part(value, part)
        return value

    def part(self, value: Value, part: str | int) -> Value:
        match value:
            case Struct() | Thing() if isinstance(part, str):
                found = value.fields.get(part)
                return found if found is not None else Unknown(f"`{part}`")
            case Array() if isinstance(part, int) and 0 <= part < len(value.items):
                return value.items[part]
            case _:
                return Unknown(f"`{part}`" if isinstance(part, str) else "an element of an array")

    def write(self, spot: Spot, value: Value) -> None:
        if self.state is None:
            return
        self.state.cells[spot.cell] = self.with_part(self.state.cells.get(spot.cell, NOTHING), spot.path, value)

    def with_part(self, whole_value: Value, path: tuple[str | int, ...], value: Value) -> Value:
        if not path:
            return value
        head, rest = path[0], path[1:]
        if isinstance(whole_value, (Struct, Thing)) and isinstance(head, str):
            inner = self.with_part(whole_value.fields.get(head, NOTHING), rest, value)
            return evolve(whole_value, fields={**whole_value.fields, head: inner})
        if isinstance(whole_value, Array) and isinstance(head, int) and 0 <= head < len(whole_value.items):
            items = list(whole_value.items)
            items[head] = self.with_part(items[head], rest, value)
            return evolve(whole_value, items=tuple(items))
        if isinstance(whole_value, Unknown) and isinstance(head, str):
            return Struct("", {head: self.with_part(NOTHING, rest, value)})
        return whole_value

    def forget(self, spot: Spot, reason: str) -> None:
        """After something that is not followed may have written here."""
        self.write(spot, self.blurred(self.read(spot), self.label(spot), reason))

    def blurred(self, value: Value, label: str, reason: str) -> Value:
        match value:
            case Number():
                return self.unknown(label, reason, value.ctype)
            case Struct():
                return evolve(
                    value, fields={n: self.blurred(v, f"{label}.{n}", reason) for n, v in value.fields.items()}
                )
            case Array():
                return evolve(value, items=tuple(self.blurred(item, label, reason) for item in value.items))
            case Thing() if "items" in value.fields:
                # Its length stays; what it holds does not.
                return evolve(value, fields={n: v for n, v in value.fields.items() if n != "items"})
            case Lambda() | FunctionName():
                return Unknown(reason)
            case Unknown():
                return value
            case _:
                return Unknown(reason)

    def label(self, spot: Spot) -> str:
        return ".".join((self.labels.get(spot.cell, ""), *(str(part) for part in spot.path)))

    def resolve(self, kind: Kind, depth: int = 0) -> Kind:
        """A type with the names of templates and aliases replaced."""
        if depth > 8:
            return kind
        base = kind.base
        if not self.frames:
            return kind
        frame = self.frames[-1]
        if base in frame.types:
            written = frame.types[base]
            stars = len(written) - len(written.rstrip("*"))
            inner = Kind(canonical_type(written.rstrip("* ")), stars)
            if inner.base == base:
                return kind
        else:
            alias = frame.aliases.get(base) or frame.unit.scope.aliases.get(base.rsplit("::", 1)[-1])
            if alias is None or base in SIZEOF:
                plain = base.removeprefix("std::")
                return evolve(kind, base=plain) if plain in SIZEOF and plain != base else kind
            inner = alias
        if inner.base == base and inner.pointers == 0:
            return kind
        inner = self.resolve(inner, depth + 1)
        return evolve(kind, base=inner.base, pointers=kind.pointers + inner.pointers)

    def record(self, name: str) -> Record | None:
        plain = name.split("<")[0].strip().rsplit("::", 1)[-1]
        for frame in reversed(self.frames[-1:]):
            if plain in frame.records:
                return frame.records[plain]
            if plain in frame.unit.scope.records:
                return frame.unit.scope.records[plain]
        return None

    def width(self, kind: Kind, depth: int = 0) -> int | None:
        """`sizeof` a type."""
        kind = self.resolve(kind)
        if kind.pointers:
            return 8
        known = SIZEOF.get(canonical_type(kind.base))
        if known is not None:
            return known
        record = self.record(kind.base)
        if record is None or depth > 4 or record.template or not record.members:
            return None
        total, alignment = 0, 1
        for member in record.members:
            width = self.width(member.kind, depth + 1)
            if width is None:
                return None
            inner = self.resolve(member.kind).base
            align = min(width, 8) if inner not in ("float4", "int4", "uint4", "double2") else 16
            if self.record(inner) is not None:
                align = 8 if width % 8 == 0 else 4
            if width % align:
                align = 4 if width % 4 == 0 else 1
            for size in member.kind.sizes:
                count = self.evaluate(size) if size is not None else NOTHING
                if not isinstance(count, Number) or count.value is None:
                    return None
                width *= int(count.value)
            total = -(-total // align) * align + width
            alignment = max(alignment, align)
        return -(-total // alignment) * alignment

    def resolve_text(self, written: str) -> str:
        """A type as written, the names of templates and aliases replaced."""
        plain = written.strip()
        stars = len(plain) - len(plain.rstrip("* "))
        return self.resolve(Kind(canonical_type(plain.rstrip("* ")), stars)).text

    def width_of_text(self, written: str) -> int | None:
        """`sizeof` a type as written."""
        return self.width(Kind(canonical_type(written)))

    def fork(self, first: Callable[[], None], second: Callable[[], None], condition: Number | None) -> None:
        """Both sides of a branch whose condition is not known."""
        before = self.state
        if before is None:
            return
        other = before.copy()
        before_sure = before.sure
        self.assume(condition, True)
        before.sure = False
        first()
        after_first = self.state
        self.state = other
        self.assume(condition, False)
        other.sure = False
        second()
        self.state = self.joined(after_first, self.state, condition)
        if self.state is not None:
            self.state.sure = before_sure

    def assume(self, condition: Number | None, answer: bool) -> None:
        if condition is None or self.state is None or condition.term.is_constant:
            return
        if next(condition.term.sources(), None) is None or len(self.state.conditions) >= MAX_CONDITIONS:
            return
        self.state.conditions = (*self.state.conditions, (condition.term, answer))

    def joined(self, first: State | None, second: State | None, condition: Number | None) -> State | None:
        if first is None or second is None:
            return first or second
        cells = dict(first.cells)
        for cell, value in second.cells.items():
            mine = cells.get(cell)
            if mine is None:
                cells[cell] = value
            elif mine is not value and mine != value:
                cells[cell] = self.either(mine, value, condition, self.labels.get(cell, ""))
        shared = []
        for one, other in zip(first.conditions, second.conditions, strict=False):
            if one != other:
                break
            shared.append(one)
        return State(cells, tuple(shared), first.sure and second.sure)

    def either(self, first: Value, second: Value, condition: Number | None, label: str) -> Value:
        if isinstance(first, Number) and isinstance(second, Number):
            ctype = common_type(first.ctype, second.ctype)
            if condition is not None and condition.value is None and not condition.floating:
                if any(source.reason == "" for source in condition.term.sources()):
                    return Number(build("?:", (condition.term, first.term, second.term), ctype), ctype)
            return self.unknown(label, f"`{label}`, which depends on the way that is taken", ctype)
        if isinstance(first, Struct) and isinstance(second, Struct) and first.fields.keys() == second.fields.keys():
            fields = {
                name: value
                if value == second.fields[name]
                else self.either(value, second.fields[name], condition, f"{label}.{name}")
                for name, value in first.fields.items()
            }
            return evolve(first, fields=fields)
        if isinstance(first, Array) and isinstance(second, Array) and len(first.items) == len(second.items):
            pairs = zip(first.items, second.items, strict=True)
            return evolve(first, items=tuple(a if a == b else self.either(a, b, condition, label) for a, b in pairs))
        return Unknown(f"`{label}`, which depends on the way that is taken")

    def decide(self, value: Value) -> tuple[bool | None, Number | None]:
        """Whether a condition holds (None: not known), and the condition as a number."""
        number = truth(value)
        if number is None:
            return None, None
        if number.value is not None:
            return bool(number.value), number
        if self.state is not None:
            for term, answer in self.state.conditions:
                if term == number.term:
                    return answer, number
                if answer and term.operator == "==" and number.term.operator == "==":
                    one, other = term.operands, number.term.operands
                    if one[0] == other[0] and one[1].is_constant and other[1].is_constant and one[1] != other[1]:
                        return False, number
        return None, number

    def branch(self, value: Value, first: Callable[[], None], second: Callable[[], None]) -> None:
        holds, number = self.decide(value)
        if holds is None:
            self.fork(first, second, number)
            return
        self.assume(number, holds)
        (first if holds else second)()
