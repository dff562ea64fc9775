"""What a program's host code launches, found by abstract interpretation.

The interpreter starts at `main` (with no arguments on the command line), else at each function that nobody calls, with
its parameters as free sizes. It follows calls, takes the side of an `if` that its condition says, both sides where the
condition is not known, and joins what they leave; loops are run while their condition is known and the budget lasts.
What it cannot know becomes a name of its own, so that `grid = (n + 255) / 256` stays true for an `n` without a value.
Nothing is executed: the text is data.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from attrs import evolve, frozen

from dice_lsp.source import host_calls, torch_host
from dice_lsp.source.expressions import SIZEOF, canonical_type
from dice_lsp.source.host_tree import (
    Declared,
    FileScope,
    FunctionDef,
    Kind,
    Record,
    Tree,
    copied,
    declarations,
    described,
    file_scope,
    parameters_of,
)
from dice_lsp.source.host_values import (
    FLOATING,
    NOTHING,
    Address,
    Array,
    Block,
    FunctionName,
    Lambda,
    Number,
    Pointer,
    Spot,
    Struct,
    Term,
    Text,
    Thing,
    Unknown,
    Value,
    alias,
    binary,
    build,
    common_type,
    constant,
    convert,
    truth,
    unknown_term,
    variable,
    whole,
)
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.preprocess import HostText, host_text
from dice_lsp.source.project import OverlaidTexts, ProjectTexts
from dice_lsp.source.syntax import body_tree, named

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
MAX_TOTAL_STEPS = 80_000
"""Of all entries of a program together."""
DIM3 = ("x", "y", "z")


class Library(Protocol):
    """What the interpreter is told of a library's types and functions. Every answer may be None: not mine."""

    def parameter(self, machine: "Machine", type_text: str, name: str) -> Value | None:
        """The value of a parameter of an entry function."""
        ...

    def construct(self, machine: "Machine", type_text: str, arguments: tuple[Value, ...]) -> Value | None:
        """An object of a type of the library."""
        ...

    def call(
        self, machine: "Machine", name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        """A call of a function, its name as written."""
        ...

    def method(
        self, machine: "Machine", value: Value, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        """A call of an object's method."""
        ...


Given = tuple[tuple[str, tuple[tuple[str, object], ...]], ...]
LIBRARIES: tuple[Library, ...] = (torch_host.LIBRARY,)


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


class _State:
    """What changes as the program runs; copied where its paths part."""

    __slots__ = ("cells", "conditions", "sure")

    def __init__(self, cells: dict[int, Value], conditions: tuple[tuple[Term, bool], ...], sure: bool) -> None:
        self.cells, self.conditions, self.sure = cells, conditions, sure

    def copy(self) -> "_State":
        return _State(dict(self.cells), self.conditions, self.sure)


class _Frame:
    """One call of a function."""

    def __init__(self, unit: "Unit", name: str) -> None:
        self.unit, self.name = unit, name
        self.names: dict[str, Spot] = {}
        self.types: dict[str, str] = {}
        self.aliases: dict[str, Kind] = {}
        self.records: dict[str, Record] = {}
        self.returns: list[tuple[_State, Value]] = []
        self.breaks: list[list[_State]] = []
        self.continues: list[list[_State]] = []
        self.this: Spot | None = None
        self.record: str | None = None


class _OutOfBudget(Exception):
    """The program is longer than anyone wants to wait for."""


@frozen(eq=False)
class Unit:
    """One translation unit: a source file with its headers."""

    path: str
    text: HostText
    scope: FileScope


class Machine:
    """Interprets one program. Libraries may use `free`, `run`, `write`, `read`, `resolve`."""

    def __init__(self, units: Sequence[Unit], kernels: frozenset[str], launching: frozenset[str]) -> None:
        self.units = units
        self.kernels = kernels
        self.launching = launching
        """Functions of the program that start a kernel, directly or not."""
        self.launches: list[HostLaunch] = []
        self.seen: set[object] = set()
        self.started: set[str] = set()
        """Kernels with a launch."""
        self.total_steps = 0
        self.state: _State | None = None
        self.frames: list[_Frame] = []
        self.labels: dict[int, str] = {}
        self.kinds: dict[int, Kind] = {}
        self.globals: dict[tuple[int, str], Spot] = {}
        self.constants: dict[tuple[int, str], Number] = {}
        self.next_cell = 0
        self.steps = 0
        self.entry = ""
        self.arguments = 1
        self.from_main = False
        self.reached = True
        self.given: Mapping[str, Mapping[str, object]] = {}
        """Function -> parameter -> what a program in Python passes, for libraries."""
        self.entered: set[tuple[int, int]] = set()
        """Bodies that have been run."""

    # Entries

    def enter(self, unit: Unit, function: FunctionDef, *, arguments: int | None, reached: bool = True) -> None:
        """Run one function of the program: `main` with that many words on its command line, any other freely."""
        self.state = _State({}, (), True)
        self.globals.clear()
        self.steps = 0
        self.entry, self.reached = function.name, reached
        self.from_main = function.name == "main" and function.record is None
        frame = _Frame(unit, function.name)
        self.frames = [frame]
        try:
            for types in self.template_choices(unit, function):
                self.state = _State({}, (), self.from_main)
                frame.names = {}
                frame.types = types
                self.bind_free(function, frame, arguments)
                self.entered.add((id(unit), function.start))
                self.block(function.body)
                frame.returns.clear()
        except (_OutOfBudget, RecursionError):
            pass
        self.state, self.frames = None, []

    def template_choices(self, unit: Unit, function: FunctionDef) -> list[dict[str, str]]:
        """The types that a function template is instantiated with; names stay names where nothing says."""
        if not function.template:
            return [{}]
        names = [name for name, _, _ in function.template]
        found = [
            dict(zip(names, written, strict=False)) for written in unit.scope.instantiations.get(function.name, ())
        ]
        for kinds in unit.scope.instantiations.get(f"{function.name}()", ()):
            deduced: dict[str, str] = {}
            for parameter, kind in zip(function.parameters, kinds, strict=False):
                if parameter.kind.base in names:
                    deduced[parameter.kind.base] = kind.rstrip("*")
            if deduced.keys() >= {name for name, is_type, default in function.template if default is None}:
                found.append(deduced)
        return found or [{name: default.text for name, _, default in function.template if default is not None}]

    def bind_free(self, function: FunctionDef, frame: _Frame, arguments: int | None) -> None:
        if self.from_main:
            values: list[Value] = [
                whole(1) if arguments is not None else Number(unknown_term("argc", "the command line")),
                Thing("argv", "argv"),
            ]
            for parameter, value in zip(function.parameters, values, strict=False):
                frame.names[parameter.name] = self.new(parameter.name, parameter.kind, value)
            return
        for parameter in function.parameters:
            if parameter.name:
                value = self.free_value(parameter.kind, parameter.name)
                frame.names[parameter.name] = self.new(parameter.name, parameter.kind, value)

    def free_value(self, kind: Kind, label: str, depth: int = 0) -> Value:
        """A parameter of which nothing is said."""
        kind = self.resolve(kind)
        for library in LIBRARIES:
            if (found := library.parameter(self, kind.text, label)) is not None:
                return found
        if kind.pointers:
            if kind.pointers == 1 and self.record(kind.base) is not None and depth < 2:
                spot = self.new(label, Kind(kind.base), self.free_value(Kind(kind.base), label, depth + 1))
                return Address(spot.cell, (), kind.base)
            return Pointer(Block(label, None, "given"), constant(0), kind.base + "*" * (kind.pointers - 1))
        if kind.base in SIZEOF and kind.base not in ("dim3",) and not kind.base[-1:].isdigit():
            return Number(unknown_term(label, size=kind.base not in FLOATING and kind.base != "bool"), kind.base)
        if kind.base in ("dim3", "uint3"):
            parts = {axis: Number(unknown_term(f"{label}_{axis}", size=True), "unsigned int") for axis in DIM3}
            return Struct("dim3", parts)
        record = self.record(kind.base)
        if record is not None and depth < 3:
            fields = {m.name: self.free_value(m.kind, f"{label}_{m.name}", depth + 1) for m in record.members}
            return Struct(record.name, fields)
        return Unknown(f"`{label}`")

    # What libraries use

    def free(self, name: str, ctype: str = "int") -> Number:
        """A size that may be anything."""
        return Number(unknown_term(name, size=True), ctype)

    def conditions(self) -> tuple[tuple[Term, bool], ...]:
        """What was asked on the way here, and the answers."""
        return self.state.conditions if self.state is not None else ()

    def unknown(self, name: str, reason: str, ctype: str = "int") -> Number:
        """A number that only the run decides."""
        return Number(unknown_term(name, reason), ctype)

    def run(self, function: Value, arguments: tuple[Value, ...] = (), types: Mapping[str, str] | None = None) -> Value:
        """Call a lambda or a function, with these names for types."""
        if isinstance(function, FunctionName):
            return self.call_named(function.name, function.template, arguments, None)
        if not isinstance(function, Lambda) or self.state is None:
            return NOTHING
        outer = self.frames[-1]
        frame = _Frame(function.unit or outer.unit, outer.name)
        frame.names = dict(function.names)
        frame.types = {**outer.types, **(types or {})}
        frame.aliases, frame.records = dict(outer.aliases), dict(outer.records)
        frame.this, frame.record = outer.this, outer.record
        declarator, body = function.tree.one("declarator"), function.tree.one("body")
        if body is None:
            return NOTHING
        listed = declarator.one("parameters") if declarator is not None else None
        for parameter, value in zip(parameters_of(listed), arguments, strict=False):
            frame.names[parameter.name] = self.new(parameter.name, parameter.kind, value)
        return self.in_frame(frame, body)

    # Memory

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

    # Types

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

    # Paths

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

    def joined(self, first: _State | None, second: _State | None, condition: Number | None) -> _State | None:
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
        return _State(cells, tuple(shared), first.sure and second.sure)

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

    # Statements

    def block(self, tree: Tree) -> None:
        """A compound statement, in a scope of its own."""
        frame = self.frames[-1]
        names = frame.names
        frame.names = dict(names)
        for kid in tree.kids:
            if self.state is None:
                break
            self.statement(kid)
        frame.names = names

    def tick(self) -> None:
        self.steps += 1
        self.total_steps += 1
        if self.steps > MAX_STEPS or len(self.launches) > MAX_LAUNCHES:
            raise _OutOfBudget

    def statement(self, tree: Tree) -> None:
        if self.state is None:
            return
        self.tick()
        match tree.kind:
            case "compound_statement":
                self.block(tree)
            case "expression_statement":
                for kid in tree.kids:
                    self.evaluate(kid)
            case "declaration":
                self.declare(tree)
            case "if_statement":
                self.if_statement(tree)
            case "for_statement":
                self.for_statement(tree)
            case "while_statement" | "do_statement":
                self.while_statement(tree)
            case "for_range_loop":
                self.range_statement(tree)
            case "switch_statement":
                self.switch_statement(tree)
            case "return_statement":
                value = self.returned(tree.kids[0]) if tree.kids else NOTHING
                if self.state is not None:
                    self.frames[-1].returns.append((self.state, value))
                self.state = None
            case "break_statement" | "continue_statement":
                stack = self.frames[-1].breaks if tree.kind[0] == "b" else self.frames[-1].continues
                if stack:
                    stack[-1].append(self.state)
                self.state = None
            case "throw_statement" | "goto_statement":
                self.state = None
            case "labeled_statement" | "attributed_statement" | "else_clause" | "try_statement":
                kids = [kid for kid in tree.kids if kid.kind not in ("statement_identifier", "catch_clause")]
                for kid in kids:
                    self.statement(kid)
            case "alias_declaration" | "type_definition" | "using_declaration":
                self.local_type(tree)
            case "struct_specifier" | "class_specifier" | "enum_specifier":
                self.local_record(tree)
            case "ERROR":
                # What the grammar cannot read may have done anything.
                if self.state is not None:
                    self.state.sure = False
                for kid in tree.kids:
                    self.statement(kid)
            case _:
                if tree.kind.endswith("_expression") or tree.kind in ("identifier", "initializer_list"):
                    self.evaluate(tree)

    def returned(self, tree: Tree) -> Value:
        return self.evaluate(tree)

    def local_type(self, tree: Tree) -> None:
        frame = self.frames[-1]
        if tree.kind == "alias_declaration":
            name, type_ = tree.one("name"), tree.one("type")
            if name is not None and type_ is not None:
                resolved = self.resolve(described(type_))
                frame.types.pop(name.text, None)
                frame.aliases[name.text] = resolved
        elif tree.kind == "type_definition":
            type_ = tree.one("type")
            for declarator in tree.all("declarator"):
                if type_ is not None and declarator.kind == "type_identifier":
                    frame.aliases[declarator.text] = self.resolve(Kind(canonical_type(type_.text)))

    def local_record(self, tree: Tree) -> None:
        name, body = tree.one("name"), tree.one("body")
        if body is None:
            return
        if tree.kind == "enum_specifier":
            value: Value = whole(-1)
            for kid in body.kids:
                label, given = kid.one("name"), kid.one("value")
                value = self.evaluate(given) if given is not None else binary("+", value, whole(1))
                if label is not None:
                    self.frames[-1].names[label.text] = self.new(label.text, Kind("int"), value)
            return
        if name is not None:
            members: list[Declared] = []
            for kid in body.kids:
                if kid.kind == "field_declaration":
                    members += [m for m in declarations(kid) if m.arguments is None]
            plain = not any(kid.kind == "function_definition" for kid in body.kids)
            self.frames[-1].records[name.text] = Record(name.text, tuple(members), (), plain)

    def declare(self, tree: Tree, *, counting: bool = False) -> None:
        type_ = tree.one("type")
        if type_ is not None and type_.kind in ("struct_specifier", "enum_specifier", "class_specifier"):
            self.local_record(type_)
        for declared in declarations(tree):
            if self.state is None:
                return
            self.frames[-1].names[declared.name] = self.declared(declared, counting=counting)

    def declared(self, declared: Declared, *, counting: bool = False) -> Spot:
        """A variable as it is after its declaration."""
        kind = self.resolve(declared.kind)
        value_tree = declared.value
        if declared.arguments is not None:
            arguments = tuple(self.as_expression(argument) for argument in declared.arguments)
            value = self.constructed(kind, declared.name, arguments) if arguments else self.initial(kind, declared.name)
            return self.new(declared.name, kind, self.named(value, declared.name, counting=counting))
        if value_tree is None:
            return self.new(declared.name, kind, self.initial(kind, declared.name))
        if kind.reference and value_tree.kind not in ("argument_list", "initializer_list"):
            spot = self.spot(value_tree)
            if spot is not None:
                return spot
        if value_tree.kind == "argument_list" or (value_tree.kind == "initializer_list" and not kind.sizes):
            arguments = tuple(self.evaluate(kid) for kid in value_tree.kids)
            value = self.constructed(kind, declared.name, arguments, braces=value_tree.kind == "initializer_list")
        else:
            value = self.coerced(self.evaluate(value_tree), kind, declared.name)
            if kind.base == "auto" and isinstance(value, Number):
                kind = Kind(value.ctype)
        return self.new(declared.name, kind, self.named(value, declared.name, counting=counting))

    def as_expression(self, tree: Tree) -> Value:
        """A parameter of what reads like a function's declaration, taken for an argument."""
        if tree.kind != "parameter_declaration":
            return self.evaluate(tree)
        type_ = tree.one("type")
        declarator = tree.one("declarator")
        if type_ is None:
            return NOTHING
        if declarator is not None and declarator.kind == "abstract_function_declarator":
            inner = declarator.one("parameters")
            arguments = tuple(self.as_expression(kid) for kid in inner.kids) if inner is not None else ()
            return self.call_named(type_.text, (), arguments, None)
        return self.lookup(type_.text)

    def named(self, value: Value, label: str, *, counting: bool = False) -> Value:
        """A constant that is given a name becomes that name."""
        if isinstance(value, Number) and value.term.is_constant and value.ctype not in FLOATING and not counting:
            assert value.term.value is not None
            return Number(variable(label, value.term.value), value.ctype)
        if isinstance(value, Number) and value.ctype not in FLOATING and value.term.operands and not counting:
            if value.term.operator != "alias":
                return Number(alias(label, value.term), value.ctype)
        return value

    def coerced(self, value: Value, kind: Kind, label: str = "") -> Value:
        """A value as a variable of a type holds it."""
        if kind.pointers or kind.sizes:
            if isinstance(value, Number) and value.value == 0:
                return Pointer(None, constant(0), self.element_of(kind))
            if isinstance(value, Pointer) and kind.pointers:
                return evolve(value, element=self.element_of(kind))
            if isinstance(value, Array) and kind.sizes and value.element == "":
                return self.sized(value, kind, label)
            return value
        if kind.base in ("dim3", "uint3"):
            return self.dim3(value) or Unknown(f"`{label}`")
        if kind.base == "auto":
            return value
        if canonical_type(kind.base) in SIZEOF:
            base = canonical_type(kind.base)
            if isinstance(value, (Number,)):
                return convert(value, base) if not base[-1:].isdigit() else value
            if isinstance(value, Unknown) and not base[-1:].isdigit():
                return self.unknown(label, value.reason or f"`{label}`", base)
            known = truth(value) if base == "bool" else None
            if known is not None:
                return convert(known, "bool")
        if isinstance(value, Array):
            return self.constructed(kind, label, value.items, braces=True)
        return value

    def element_of(self, kind: Kind) -> str:
        return kind.base + "*" * max(kind.pointers - 1 + (1 if kind.sizes and kind.pointers else 0), 0)

    def sized(self, value: Array, kind: Kind, label: str) -> Value:
        element = Kind(kind.base, kind.pointers, sizes=kind.sizes[1:])
        items = [self.coerced(item, element, label) for item in value.items]
        size = self.evaluate(kind.sizes[0]) if kind.sizes[0] is not None else whole(len(items))
        if isinstance(size, Number) and size.value is not None and len(items) <= size.value <= 64:
            items += [self.coerced(whole(0), element, label) for _ in range(int(size.value) - len(items))]
        return Array(tuple(items), element.text)

    def initial(self, kind: Kind, label: str) -> Value:
        """What a variable without an initialiser holds."""
        if kind.sizes:
            size = self.evaluate(kind.sizes[0]) if kind.sizes[0] is not None else NOTHING
            element = evolve(kind, sizes=kind.sizes[1:])
            if isinstance(size, Number) and size.value is not None and 0 < size.value <= 64:
                return Array(tuple(self.initial(element, label) for _ in range(int(size.value))), element.text)
            nbytes = self.width(element)
            if isinstance(size, Number) and nbytes is not None:
                total = build("*", (size.term, constant(nbytes)), "long")
                return Pointer(Block(label, total, "host"), constant(0), element.text)
            return Unknown(f"`{label}`")
        if kind.pointers:
            return Pointer(Block(label, None, "given"), constant(0), self.element_of(kind))
        if kind.base == "dim3":
            return Struct("dim3", {axis: whole(1, "unsigned int") for axis in DIM3})
        if canonical_type(kind.base) in SIZEOF and not kind.base[-1:].isdigit():
            return self.unknown(label, f"`{label}`, which is not set", canonical_type(kind.base))
        return self.constructed(kind, label, ())

    def constructed(self, kind: Kind, label: str, arguments: tuple[Value, ...], *, braces: bool = False) -> Value:
        """`T name(arguments)` or `T name{arguments}`."""
        if kind.pointers or (canonical_type(kind.base) in SIZEOF and kind.base != "dim3"):
            if not arguments:
                return self.coerced(whole(0), kind, label)
            if len(arguments) == 1:
                return self.coerced(arguments[0], kind, label)
            return Array(arguments)
        if kind.base == "dim3":
            if len(arguments) == 1 and not isinstance(arguments[0], Number):
                return self.dim3(arguments[0]) or Unknown(f"`{label}`")
            return self.dim3(Array(arguments)) or Unknown(f"`{label}`")
        if kind.base == "auto":
            return arguments[0] if len(arguments) == 1 else Array(arguments)
        listed = (Array(arguments),) if braces and arguments else arguments
        if (found := host_calls.CONTAINERS.construct(self, kind.text, listed)) is not None:
            return found
        for library in LIBRARIES:
            if (found := library.construct(self, kind.text, arguments)) is not None:
                return found
        record = self.record(kind.base)
        if record is None:
            if len(arguments) == 1 and isinstance(arguments[0], (Struct, Thing)):
                return arguments[0]
            return Unknown(f"`{label}`")
        if len(arguments) == 1 and isinstance(arguments[0], Struct) and arguments[0].type == record.name:
            return arguments[0]
        fields: dict[str, Value] = {}
        given = list(arguments) if record.plain else []
        for member in record.members:
            member_kind = self.resolve(member.kind)
            if given:
                fields[member.name] = self.coerced(given.pop(0), member_kind, member.name)
            elif member.value is not None and not (arguments and not record.plain):
                value = self.evaluate(member.value)
                if isinstance(value, Array) and not member_kind.sizes and len(value.items) == 1:
                    value = value.items[0]
                fields[member.name] = self.coerced(value, member_kind, member.name)
            elif arguments and record.plain and braces:
                fields[member.name] = self.coerced(whole(0), member_kind, member.name)
            else:
                fields[member.name] = self.initial(member_kind, f"{label}.{member.name}")
        return Struct(record.name, fields)

    def dim3(self, value: Value) -> Struct | None:
        """A size of a launch; a number is `(n, 1, 1)`."""
        match value:
            case Struct() if all(isinstance(value.fields.get(axis), Number) for axis in DIM3):
                return Struct("dim3", {axis: value.fields[axis] for axis in DIM3})
            case Number():
                parts = [value]
            case Array() if 1 <= len(value.items) <= 3:
                parts = [item for item in value.items if isinstance(item, Number)]
                if len(parts) != len(value.items):
                    return None
            case Array() if not value.items:
                parts = [whole(1)]
            case _:
                return None
        numbers = [convert(part, "unsigned int") for part in parts] + [whole(1, "unsigned int")] * (3 - len(parts))
        return Struct("dim3", dict(zip(DIM3, numbers, strict=True)))

    def if_statement(self, tree: Tree) -> None:
        clause, consequence, alternative = tree.one("condition"), tree.one("consequence"), tree.one("alternative")
        frame = self.frames[-1]
        names = frame.names
        frame.names = dict(names)
        value = self.condition(clause)

        def otherwise() -> None:
            if alternative is not None:
                self.statement(alternative)

        def then() -> None:
            if consequence is not None:
                self.statement(consequence)

        if self.state is not None:
            self.branch(value, then, otherwise)
        frame.names = names

    def condition(self, clause: Tree | None) -> Value:
        if clause is None:
            return NOTHING
        if clause.kind not in ("condition_clause", "parenthesized_expression"):
            return self.evaluate(clause)
        initializer = clause.one("initializer")
        for kid in initializer.kids if initializer is not None else ():
            self.statement(kid)
        value = clause.one("value") or (clause.kids[-1] if clause.kids else None)
        if value is None:
            return NOTHING
        if value.kind == "declaration":
            self.declare(value)
            found = declarations(value)
            return self.lookup(found[-1].name) if found else NOTHING
        return self.evaluate(value)

    def for_statement(self, tree: Tree) -> None:
        frame = self.frames[-1]
        names = frame.names
        frame.names = dict(names)
        initializer = tree.one("initializer")
        if initializer is not None:
            if initializer.kind == "declaration":
                self.declare(initializer, counting=True)
            else:
                self.counting(initializer)
        self.loop(tree, tree.one("condition"), tree.one("body"), tree.one("update"))
        frame.names = names

    def counting(self, tree: Tree) -> None:
        """`i = 0` at the head of a loop: a counter is no size, so its value stays a plain number."""
        for part in tree.walk():
            if part.kind == "assignment_expression":
                left, right = part.one("left"), part.one("right")
                spot = self.spot(left) if left is not None else None
                if spot is not None and right is not None:
                    self.write(spot, self.plain(self.evaluate(right)))
        if not any(part.kind == "assignment_expression" for part in tree.walk()):
            self.evaluate(tree)

    def plain(self, value: Value) -> Value:
        if isinstance(value, Number) and value.term.operator == "var" and value.value is not None:
            return value
        return value

    def while_statement(self, tree: Tree) -> None:
        self.loop(tree, tree.one("condition"), tree.one("body"), None, at_least_once=tree.kind == "do_statement")

    def loop(
        self, tree: Tree, condition: Tree | None, body: Tree | None, update: Tree | None, *, at_least_once: bool = False
    ) -> None:
        """A loop: turn by turn while it is known whether there is another one, then no more is known of what it changes."""
        if self.state is None or body is None:
            return
        frame = self.frames[-1]
        limit = MAX_TURNS if self.starts_kernels(tree) else FEW_TURNS
        conditions, was_sure = self.state.conditions, self.state.sure
        ended: list[_State] = []
        turns = idle = 0
        while self.state is not None:
            holds: bool | None = True
            number: Number | None = None
            if condition is not None and not (at_least_once and turns == 0):
                holds, number = self.decide(self.condition(condition))
            if self.state is None:
                break
            if holds is False:
                ended.append(self.state)
                self.state = None
                break
            if (
                holds is None
                or turns >= limit
                or (limit == MAX_TURNS and idle >= IDLE_TURNS and turns > FEW_TURNS // 2)
            ):
                if turns < limit and turns < 3:
                    # Nobody knows whether there is a turn; if there is one, it is like this.
                    after = self.state.copy()
                    self.assume(number, True)
                    self.state.sure = False
                    frame.breaks.append([])
                    frame.continues.append([])
                    self.statement(body)
                    frame.breaks.pop()
                    frame.continues.pop()
                    self.state = after
                self.forget_changes(tree)
                if self.state is not None:
                    ended.append(self.state)
                self.state = None
                break
            self.assume(number, True)
            frame.breaks.append([])
            frame.continues.append([])
            before = len(self.launches)
            self.statement(body)
            idle = 0 if len(self.launches) > before else idle + 1
            ended += frame.breaks.pop()
            for state in frame.continues.pop():
                self.state = self.joined(self.state, state, None)
            if self.state is not None and update is not None:
                self.evaluate(update)
            turns += 1
        merged: _State | None = None
        for state in ended:
            merged = self.joined(merged, state, None)
        self.state = merged
        if self.state is not None:
            self.state.conditions = conditions
            self.state.sure = was_sure

    def starts_kernels(self, tree: Tree) -> bool:
        for part in tree.walk():
            if part.kind == "kernel_call_syntax":
                return True
            if part.kind == "call_expression":
                function = part.one("function")
                name = function.text.split("<")[0].rsplit("::", 1)[-1] if function is not None else ""
                if name in self.launching or name.startswith(("cudaLaunch", "cuLaunch")):
                    return True
        return False

    def forget_changes(self, tree: Tree) -> None:
        """What a loop may change is not known after turns that were not followed."""
        for part in tree.walk():
            target: Tree | None = None
            if part.kind == "assignment_expression":
                target = part.one("left")
            elif part.kind == "update_expression":
                target = part.one("argument")
            elif part.kind == "pointer_expression" and part.text.startswith("&"):
                target = part.one("argument")
            elif part.kind == "call_expression":
                function = part.one("function")
                if function is not None and function.kind == "field_expression":
                    target = function.one("argument")
                elif function is not None:
                    self.forget_effects(function.text.split("<")[0].rsplit("::", 1)[-1], part)
            elif part.kind == "binary_expression" and ">>" in part.text:
                operator = part.one("operator")
                if operator is not None and operator.text == ">>":
                    target = part.one("right")
            while target is not None and target.kind in (
                "subscript_expression",
                "field_expression",
                "parenthesized_expression",
            ):
                target = target.one("argument") or (target.kids[0] if target.kids else None)
            if target is None or target.kind != "identifier":
                continue
            spot = self.find(target.text)
            if spot is not None:
                self.forget(spot, f"`{target.text}`, which a loop changes")

    def forget_effects(self, name: str, call: Tree) -> None:
        """Globals and reference arguments that a call within a loop changes."""
        arguments = call.one("arguments")
        for unit in self.units:
            for function in unit.scope.functions.get(name, ()):
                for parameter, argument in zip(function.parameters, arguments.kids if arguments else (), strict=False):
                    if parameter.kind.reference and not parameter.kind.const and argument.kind == "identifier":
                        spot = self.find(argument.text)
                        if spot is not None:
                            self.forget(spot, f"`{argument.text}`, which a loop changes")
                for part in function.body.walk():
                    if part.kind in ("assignment_expression", "update_expression"):
                        target = part.one("left") or part.one("argument")
                        if target is not None and target.kind == "identifier":
                            spot = self.globals.get((id(unit), target.text))
                            if spot is not None:
                                self.forget(spot, f"`{target.text}`, which a loop changes")

    def range_statement(self, tree: Tree) -> None:
        right, body, declarator = tree.one("right"), tree.one("body"), tree.one("declarator")
        values = self.evaluate(right) if right is not None else NOTHING
        if isinstance(values, Thing) and isinstance(values.fields.get("items"), Array):
            values = values.fields["items"]
        frame = self.frames[-1]
        names = frame.names
        frame.names = dict(names)
        by_reference = declarator is not None and declarator.kind == "reference_declarator"
        while declarator is not None and declarator.kind != "identifier":
            declarator = declarator.kids[-1] if declarator.kids else None
        label = declarator.text if declarator is not None else ""
        container = self.spot(right) if right is not None and by_reference else None
        if body is not None and isinstance(values, Array) and len(values.items) <= MAX_TURNS:
            ended: list[_State] = []
            for item in values.items:
                if self.state is None:
                    break
                frame.names[label] = self.new(label, Kind("auto"), item)
                frame.breaks.append([])
                frame.continues.append([])
                self.statement(body)
                ended += frame.breaks.pop()
                for state in frame.continues.pop():
                    self.state = self.joined(self.state, state, None)
            for state in ended:
                self.state = self.joined(self.state, state, None)
        elif body is not None and self.state is not None:
            after = self.state.copy()
            frame.names[label] = self.new(label, Kind("auto"), Unknown(f"`{label}`"))
            self.state.sure = False
            frame.breaks.append([])
            frame.continues.append([])
            self.statement(body)
            frame.breaks.pop()
            frame.continues.pop()
            self.state = after
            self.forget_changes(tree)
        if container is not None and body is not None and _writes(body, label):
            self.forget(container, f"`{right.text if right is not None else ''}`, which a loop changes")
        frame.names = names

    def switch_statement(self, tree: Tree) -> None:
        frame = self.frames[-1]
        names = frame.names
        frame.names = dict(names)
        value = self.condition(tree.one("condition"))
        body = tree.one("body")
        cases = [kid for kid in body.kids if kid.kind == "case_statement"] if body is not None else []
        start: int | None = None
        default = next((i for i, case in enumerate(cases) if case.one("value") is None), None)
        values = [None if (given := case.one("value")) is None else self.evaluate(given) for case in cases]
        known = isinstance(value, Number) and value.value is not None
        if known:
            assert isinstance(value, Number)
            matches = [i for i, v in enumerate(values) if isinstance(v, Number) and v.value == value.value]
            undecided = any(v is not None and not (isinstance(v, Number) and v.value is not None) for v in values)
            if matches or not undecided:
                start = matches[0] if matches else default
                if matches:
                    label = values[matches[0]]
                    assert label is not None
                    equal = binary("==", value, label)
                    if isinstance(equal, Number):
                        self.assume(equal, True)
                if start is not None:
                    self.run_cases(cases[start:])
                frame.names = names
                return
        before = self.state
        if before is None:
            frame.names = names
            return
        merged: _State | None = None
        sure = before.sure
        for index in range(len(cases)):
            self.state = before.copy()
            self.state.sure = False
            label = values[index]
            if label is not None:
                equal = binary("==", value, label)
                if isinstance(equal, Number):
                    if self.decide(equal)[0] is False:
                        continue
                    self.assume(equal, True)
            self.run_cases(cases[index:])
            merged = self.joined(merged, self.state, None)
        if default is None:
            merged = self.joined(merged, before, None)
        self.state = merged
        if self.state is not None:
            self.state.sure = sure
        frame.names = names

    def run_cases(self, cases: list[Tree]) -> None:
        frame = self.frames[-1]
        frame.breaks.append([])
        for case in cases:
            if self.state is None:
                break
            label = case.one("value")
            for kid in case.kids:
                if label is not None and kid.start == label.start and kid.end == label.end:
                    continue
                self.statement(kid)
                if self.state is None:
                    break
        for state in frame.breaks.pop():
            self.state = self.joined(self.state, state, None)

    # Places

    def find(self, name: str) -> Spot | None:
        """The variable of a name."""
        frame = self.frames[-1]
        found = frame.names.get(name)
        if found is not None:
            return found
        if frame.this is not None and frame.record is not None:
            record = self.record(frame.record)
            if record is not None and any(member.name == name for member in record.members):
                return evolve(frame.this, path=(*frame.this.path, name))
        return self.global_(name, frame.unit)

    def global_(self, name: str, unit: Unit) -> Spot | None:
        plain = name.rsplit("::", 1)[-1]
        for candidate in (unit, *(other for other in self.units if other is not unit)):
            key = (id(candidate), plain)
            if key in self.globals:
                return self.globals[key]
            declared = candidate.scope.globals.get(plain)
            if declared is None or (candidate is not unit and declared.value is None):
                continue
            self.globals[key] = Spot(0)
            outer, names = self.frames[-1], self.frames[-1].names
            frame = _Frame(candidate, outer.name)
            self.frames.append(frame)
            try:
                spot = self.declared(declared)
            finally:
                self.frames.pop()
                outer.names = names
            self.globals[key] = spot
            return spot
        return None

    def spot(self, tree: Tree) -> Spot | None:
        """The place that an expression names, if it names one."""
        match tree.kind:
            case "identifier":
                return self.find(tree.text)
            case "qualified_identifier":
                return self.find(tree.text)
            case "parenthesized_expression" if tree.kids:
                return self.spot(tree.kids[-1])
            case "field_expression":
                argument, name = tree.one("argument"), tree.one("field")
                if argument is None or name is None:
                    return None
                inner = self.spot(argument)
                value = self.read(inner) if inner is not None else self.evaluate(argument)
                if isinstance(value, Address):
                    return Spot(value.cell, (*value.path, name.text))
                return None if inner is None else evolve(inner, path=(*inner.path, name.text))
            case "subscript_expression":
                argument, indices = tree.one("argument"), tree.one("indices") or tree.one("index")
                if argument is None or indices is None:
                    return None
                inner = self.spot(argument)
                index = self.evaluate(
                    indices.kids[0] if indices.kind == "subscript_argument_list" and indices.kids else indices
                )
                if inner is None or not isinstance(index, Number) or index.value is None:
                    return None
                value = self.read(inner)
                if isinstance(value, Array):
                    return evolve(inner, path=(*inner.path, int(index.value)))
                if isinstance(value, Address):
                    return self.moved(value, int(index.value))
                if isinstance(value, Thing) and isinstance(value.fields.get("items"), Array):
                    return evolve(inner, path=(*inner.path, "items", int(index.value)))
                return None
            case "pointer_expression" if tree.text.startswith("*"):
                value = self.evaluate(tree.one("argument") or tree.kids[-1])
                return Spot(value.cell, value.path) if isinstance(value, Address) else None
            case "cast_expression":
                value_tree = tree.one("value")
                return self.spot(value_tree) if value_tree is not None else None
            case "this":
                return self.frames[-1].this
            case _:
                return None

    def moved(self, address: Address, by: int) -> Spot | None:
        """The place that many elements behind an address."""
        if address.path and isinstance(address.path[-1], int):
            return Spot(address.cell, (*address.path[:-1], address.path[-1] + by))
        return Spot(address.cell, address.path) if by == 0 else None

    def argument(self, tree: Tree) -> Value:
        """What a call is given: an array decays to the address of its first element."""
        value = self.evaluate(tree)
        if isinstance(value, Array) and tree.kind in ("identifier", "field_expression", "subscript_expression"):
            spot = self.spot(tree)
            if spot is not None and self.read(spot) == value:
                return Address(spot.cell, (*spot.path, 0), value.element or "void")
        return value

    # Expressions

    def evaluate(self, tree: Tree) -> Value:
        """The value of an expression; what it does to variables is done."""
        if self.state is None:
            return NOTHING
        self.tick()
        match tree.kind:
            case "number_literal":
                return host_calls.number(tree.text)
            case "identifier":
                return self.lookup(tree.text)
            case "parenthesized_expression" | "condition_clause":
                return self.evaluate(tree.kids[-1]) if tree.kids else NOTHING
            case "binary_expression":
                return self.binary_expression(tree)
            case "call_expression":
                return self.call_expression(tree)
            case "field_expression":
                return self.field_expression(tree)
            case "assignment_expression":
                return self.assignment(tree)
            case "update_expression":
                return self.update(tree)
            case "subscript_expression":
                return self.subscript(tree)
            case "cast_expression":
                type_, value = tree.one("type"), tree.one("value")
                if type_ is None or value is None:
                    return NOTHING
                return self.cast(self.evaluate(value), self.resolve(described(type_)))
            case "pointer_expression":
                return self.pointer_expression(tree)
            case "unary_expression":
                return self.unary(tree)
            case "conditional_expression":
                return self.conditional(tree)
            case "sizeof_expression":
                return self.sizeof(tree)
            case "true" | "false":
                return whole(int(tree.kind == "true"), "bool")
            case "null":
                return Pointer(None, constant(0))
            case "string_literal" | "concatenated_string" | "raw_string_literal":
                return Text("".join(part.text for part in tree.walk() if part.kind == "string_content"))
            case "char_literal":
                inner = tree.text.strip("'")
                return whole(ord(inner), "char") if len(inner) == 1 else NOTHING
            case "initializer_list":
                return Array(tuple(self.evaluate(kid) for kid in tree.kids))
            case "comma_expression":
                last: Value = NOTHING
                for kid in tree.kids:
                    last = self.evaluate(kid)
                return last
            case "qualified_identifier":
                return self.qualified(tree)
            case "template_function":
                name, listed = tree.one("name"), tree.one("arguments")
                return FunctionName(name.text if name else "", self.template_arguments(listed))
            case "lambda_expression":
                return Lambda(tree, self.captured(tree), self.frames[-1].unit)
            case "new_expression":
                return self.new_expression(tree)
            case "compound_literal_expression":
                type_, value = tree.one("type"), tree.one("value")
                if type_ is None or value is None:
                    return NOTHING
                arguments = tuple(self.evaluate(kid) for kid in value.kids)
                return self.constructed(self.resolve(described(type_)), "", arguments, braces=True)
            case "this":
                this = self.frames[-1].this
                return NOTHING if this is None else Address(this.cell, this.path)
            case "delete_expression":
                return NOTHING
            case "initializer_pair":
                value = tree.one("value")
                return self.evaluate(value) if value is not None else NOTHING
            case _:
                for kid in tree.kids:
                    if kid.kind.endswith("_expression"):
                        self.evaluate(kid)
                return NOTHING

    def captured(self, tree: Tree) -> dict[str, Spot]:
        """The variables of a lambda: those that it captures by value are its own."""
        names = dict(self.frames[-1].names)
        captures = tree.one("captures")
        parts = [part.strip() for part in captures.text.strip("[]").split(",")] if captures is not None else []
        copied_names = set(names) if "=" in parts else {part for part in parts if re.fullmatch(r"\w+", part)}
        copied_names -= {part[1:].strip() for part in parts if part.startswith("&")}
        for name in copied_names & names.keys():
            spot = names[name]
            kind = self.kinds.get(spot.cell, Kind("auto")) if not spot.path else Kind("auto")
            names[name] = self.new(name, kind, self.read(spot))
        for part in parts:
            name, equals, _ = part.partition("=")
            if equals and name.strip().isidentifier():
                # `[m = n * 2]`: what it stands for is not followed.
                names[name.strip()] = self.new(name.strip(), Kind("auto"), Unknown(f"`{name.strip()}`"))
        return names

    def lookup(self, name: str) -> Value:
        frame = self.frames[-1]
        spot = frame.names.get(name)
        if spot is not None:
            return self.read(spot)
        if name in frame.types:
            return self.template_value(frame.types[name], name)
        spot = self.find(name)
        if spot is not None:
            return self.read(spot)
        unit = frame.unit
        plain = name.rsplit("::", 1)[-1]
        if plain in unit.text.constants:
            return self.macro(plain, unit)
        if plain in unit.scope.enumerators:
            return self.enumerator(plain, unit)
        if plain in host_calls.CONSTANTS:
            return host_calls.CONSTANTS[plain]
        if plain in self.kernels or any(plain in other.scope.functions for other in self.units):
            return FunctionName(plain)
        return Unknown(f"`{name}`")

    def template_value(self, written: str, name: str) -> Value:
        """A template parameter that is a value."""
        if re.fullmatch(r"\s*-?\d+\w*\s*", written):
            return self.named(host_calls.number(written.strip()), name)
        if written in ("true", "false"):
            return whole(int(written == "true"), "bool")
        return self.lookup(written) if written != name and re.fullmatch(r"\w+", written) else Unknown(f"`{name}`")

    def macro(self, name: str, unit: Unit) -> Number | Unknown:
        key = (id(unit), name)
        if key not in self.constants:
            value = self.parsed(unit.text.constants[name])
            if not isinstance(value, Number) or value.value is None:
                return Unknown(f"`{name}`")
            self.constants[key] = Number(variable(name, value.value), value.ctype)
        return self.constants[key]

    def parsed(self, expression: str) -> Value:
        body = body_tree(f"{expression};")
        statement = named(body)[0] if body is not None and named(body) else None
        if statement is None or statement.type != "expression_statement":
            return NOTHING
        text = f"void body() {{{expression};\n}}"
        return self.evaluate(copied(named(statement)[0], text))

    def enumerator(self, name: str, unit: Unit, depth: int = 0) -> Value:
        value, before = unit.scope.enumerators[name]
        if value is not None:
            return self.evaluate(value)
        if before is None:
            return whole(0)
        chain = [before]
        while len(chain) < 500:
            value, previous = unit.scope.enumerators[chain[-1]]
            if value is not None or previous is None:
                break
            chain.append(previous)
        first = self.evaluate(value) if value is not None else whole(0)
        return binary("+", first, whole(len(chain)))

    def qualified(self, tree: Tree) -> Value:
        name = tree.one("name")
        while name is not None and name.kind == "qualified_identifier":
            name = name.one("name")
        if name is None:
            return NOTHING
        if name.kind == "template_function":
            return self.evaluate(name)
        scope = tree.one("scope")
        if scope is not None:
            constant_ = self.static_member(scope, name.text)
            if constant_ is not None:
                return constant_
        spot = self.frames[-1].names.get(tree.text)
        if spot is not None:
            return self.read(spot)
        return self.lookup(name.text)

    def static_member(self, scope: Tree, name: str) -> Value | None:
        """`Packed<float>::size`: a constant of a class, with its template's arguments in place."""
        kind = self.resolve(Kind(canonical_type(scope.text)))
        record = self.record(kind.base)
        if record is None:
            return None
        member = next((m for m in record.members if m.name == name and m.value is not None), None)
        if member is None or member.value is None:
            return None
        written = re.search(r"<(.*)>", kind.base)
        frame = _Frame(self.frames[-1].unit, self.frames[-1].name)
        if written is not None:
            names = [label for label, _, _ in record.template]
            frame.types = dict(zip(names, (part.strip() for part in written[1].split(",")), strict=False))
        self.frames.append(frame)
        try:
            return self.evaluate(member.value)
        finally:
            self.frames.pop()

    def template_arguments(self, listed: Tree | None) -> tuple[str, ...]:
        """Template arguments as texts, with the names of the frame replaced."""
        found = []
        for kid in listed.kids if listed is not None else ():
            found.append(self.template_argument(kid))
        return tuple(found)

    def template_argument(self, tree: Tree) -> str:
        if tree.kind == "type_descriptor":
            type_ = tree.one("type")
            plain = tree.text.strip()
            if type_ is not None and type_.kind == "type_identifier" and plain == type_.text:
                frame = self.frames[-1]
                if plain not in frame.types and plain not in frame.aliases and plain not in frame.unit.scope.aliases:
                    value = self.lookup(plain)
                    if isinstance(value, Number) and value.value is not None:
                        return _number_text(value)
                    if isinstance(value, FunctionName):
                        return plain
                elif plain in frame.types and re.fullmatch(r"-?\d+|true|false", frame.types[plain]):
                    return frame.types[plain]
            kind = self.resolve(described(tree))
            return ("const " if kind.const and kind.pointers else "") + self.type_text(kind)
        value = self.evaluate(tree)
        if isinstance(value, Number) and value.value is not None:
            return _number_text(value)
        if isinstance(value, Number):
            return f"?{value.term.reason or value.term.label}"
        if isinstance(value, FunctionName):
            return value.name
        return tree.text if tree.kind in ("identifier", "qualified_identifier") else f"?{tree.text}"

    def type_text(self, kind: Kind) -> str:
        """A type with the names inside its own template arguments replaced."""
        base = kind.base
        if "<" in base:
            frame = self.frames[-1]
            base = re.sub(
                r"[A-Za-z_]\w*", lambda m: self.resolve(Kind(m[0])).text if m[0] in frame.types else m[0], base
            )
        return base + "*" * kind.pointers

    def binary_expression(self, tree: Tree) -> Value:
        left, right, operator = tree.one("left"), tree.one("right"), tree.one("operator")
        if left is None or right is None or operator is None:
            return NOTHING
        first = self.argument(left) if operator.text in ("+", "-") else self.evaluate(left)
        if operator.text in ("&&", "||"):
            holds, _ = self.decide(first)
            if holds is not None and holds == (operator.text == "||"):
                number = truth(first)
                return (
                    Number(number.term, "bool")
                    if number is not None and number.value is None
                    else (
                        Number(build("!=", (number.term, constant(0)), "int"), "bool")
                        if number is not None
                        else whole(int(holds))
                    )
                )
            if holds is None:
                # The second operand may not be evaluated at all, so what it does is not certain.
                second_value: list[Value] = [NOTHING]

                def second() -> None:
                    second_value[0] = self.evaluate(right)

                if self.changes(right):
                    self.fork(second, lambda: None, None)
                else:
                    second()
                return binary(operator.text, first, second_value[0])
        second_ = self.evaluate(right)
        if operator.text == ">>" and not isinstance(first, Number):
            spot = self.spot(right)
            if spot is not None:
                self.forget(spot, f"`{right.text}`, which is read from a stream")
            return first
        if isinstance(first, Address) and isinstance(second_, Number) and operator.text in ("+", "-"):
            if second_.value is None:
                return Unknown("a place in an array")
            spot = self.moved(first, int(second_.value) * (1 if operator.text == "+" else -1))
            return Unknown("a place in an array") if spot is None else Address(spot.cell, spot.path, first.element)
        return binary(operator.text, first, second_)

    def changes(self, tree: Tree) -> bool:
        return any(p.kind in ("assignment_expression", "update_expression", "call_expression") for p in tree.walk())

    def unary(self, tree: Tree) -> Value:
        operator, argument = tree.one("operator"), tree.one("argument")
        if operator is None or argument is None:
            return NOTHING
        value = self.evaluate(argument)
        if operator.text in ("!", "not"):
            number = truth(value)
            return NOTHING if number is None else Number(build("!", (number.term,), "int"), "bool")
        if not isinstance(value, Number):
            return NOTHING
        if operator.text == "+":
            return value
        if operator.text in ("-", "~"):
            ctype = common_type(value.ctype, "int")
            return Number(build("neg" if operator.text == "-" else "~", (value.term,), ctype), ctype)
        return NOTHING

    def conditional(self, tree: Tree) -> Value:
        condition, first, second = tree.one("condition"), tree.one("consequence"), tree.one("alternative")
        if condition is None or second is None:
            return NOTHING
        value = self.evaluate(condition)
        holds, number = self.decide(value)
        if holds is not None:
            chosen = (first if first is not None else condition) if holds else second
            result = self.evaluate(chosen)
            if number is not None and not number.term.is_constant and isinstance(result, Number):
                # The other side may count for another size, so both stand in the term.
                if not self.changes(first or condition) and not self.changes(second):
                    sides = (result, self.evaluate(second if holds else (first or condition)))
                    if isinstance(sides[1], Number) and not number.floating:
                        pair = sides if holds else sides[::-1]
                        ctype = common_type(sides[0].ctype, sides[1].ctype)
                        assert isinstance(pair[0], Number) and isinstance(pair[1], Number)
                        return Number(build("?:", (number.term, pair[0].term, pair[1].term), ctype), ctype)
                self.assume(number, holds)
            return result
        results: list[Value] = [NOTHING, NOTHING]

        def then() -> None:
            results[0] = self.evaluate(first if first is not None else condition)

        def otherwise() -> None:
            results[1] = self.evaluate(second)

        self.fork(then, otherwise, number)
        if results[0] == results[1]:
            return results[0]
        return self.either(results[0], results[1], number, "a conditional value")

    def sizeof(self, tree: Tree) -> Value:
        type_, value = tree.one("type"), tree.one("value")
        if type_ is not None:
            width = self.width(described(type_))
        else:
            while value is not None and value.kind == "parenthesized_expression" and value.kids:
                value = value.kids[0]
            width = self.width_of(value) if value is not None else None
        if width is None:
            return self.unknown("sizeof", f"`{tree.text}`", "size_t")
        return whole(width, "size_t")

    def width_of(self, tree: Tree) -> int | None:
        """`sizeof` an expression, or a type in parentheses."""
        frame = self.frames[-1]
        if tree.kind in ("identifier", "type_identifier", "qualified_identifier"):
            spot = self.find(tree.text)
            if spot is None:
                return self.width(Kind(canonical_type(tree.text)))
            kind = self.resolve(self.kinds.get(spot.cell, Kind("")))
            if not spot.path:
                value = self.read(spot)
                if isinstance(value, Array) and kind.sizes:
                    inner = self.width(Kind(kind.base, kind.pointers))
                    total = 1
                    for size in kind.sizes:
                        count = self.evaluate(size) if size is not None else whole(len(value.items))
                        if not isinstance(count, Number) or count.value is None:
                            return None
                        total *= int(count.value)
                    return None if inner is None else inner * total
                return None if kind.sizes else self.width(kind)
        if tree.kind in ("pointer_expression", "subscript_expression"):
            argument = tree.one("argument")
            value = self.evaluate(argument) if argument is not None else NOTHING
            if tree.kind == "pointer_expression" and tree.text.startswith("&"):
                return 8
            element = value.element if isinstance(value, (Pointer, Address, Array)) else ""
            if element and element != "void":
                stars = len(element) - len(element.rstrip("*"))
                return self.width(Kind(element.rstrip("*"), stars))
            if argument is not None and argument.kind == "identifier":
                spot = frame.names.get(argument.text) or self.find(argument.text)
                kind = self.resolve(self.kinds.get(spot.cell, Kind(""))) if spot is not None else Kind("")
                if kind.pointers:
                    return self.width(evolve(kind, pointers=kind.pointers - 1))
            return None
        value = self.evaluate(tree)
        if isinstance(value, Number):
            return SIZEOF.get(value.ctype)
        if isinstance(value, Struct):
            return self.width(Kind(value.type))
        return 8 if isinstance(value, Pointer) else None

    def cast(self, value: Value, kind: Kind) -> Value:
        if kind.pointers:
            if isinstance(value, Pointer):
                return evolve(value, element=kind.base + "*" * (kind.pointers - 1))
            if isinstance(value, Number) and value.value == 0:
                return Pointer(None, constant(0))
            return value
        if kind.base == "void":
            return value
        return self.coerced(value, kind)

    def pointer_expression(self, tree: Tree) -> Value:
        argument = tree.one("argument")
        if argument is None:
            return NOTHING
        if tree.text.startswith("&"):
            spot = self.spot(argument)
            if spot is not None:
                value = self.read(spot)
                kind = self.kinds.get(spot.cell, Kind(""))
                if isinstance(value, Array) and kind.sizes:
                    return Address(spot.cell, (*spot.path, 0))
                return Address(spot.cell, spot.path, kind.text)
            if argument.kind == "subscript_expression":
                return self.subscript(argument, address=True)
            return self.evaluate(argument)
        value = self.evaluate(argument)
        if isinstance(value, Address):
            return self.read(Spot(value.cell, value.path))
        if isinstance(value, (FunctionName, Lambda)):
            return value
        if isinstance(value, Array) and value.items:
            return value.items[0]
        if isinstance(value, Pointer):
            return self.loaded(value)
        return NOTHING

    def loaded(self, pointer: Pointer) -> Value:
        """What stands in memory that nobody keeps track of."""
        label = pointer.block.label if pointer.block is not None else ""
        base = pointer.element.rstrip("*")
        if pointer.element.endswith("*"):
            return Unknown(f"an element of `{label}`")
        if canonical_type(base) in SIZEOF and not base[-1:].isdigit():
            return self.unknown(label, f"an element of `{label}`", canonical_type(base))
        return Unknown(f"an element of `{label}`")

    def subscript(self, tree: Tree, *, address: bool = False) -> Value:
        spot = self.spot(tree) if not address else None
        if spot is not None:
            return self.read(spot)
        argument, indices = tree.one("argument"), tree.one("indices") or tree.one("index")
        if argument is None or indices is None:
            return NOTHING
        value = self.evaluate(argument)
        index = self.evaluate(
            indices.kids[0] if indices.kind == "subscript_argument_list" and indices.kids else indices
        )
        if isinstance(value, Thing):
            if value.kind == "argv":
                if isinstance(index, Number) and index.value == 0:
                    return Text("program")
                return Thing("argument", f"argv[{index.value if isinstance(index, Number) else '?'}]")
            data = value.fields.get("data")
            if isinstance(data, Pointer):
                value = data
        if isinstance(value, Pointer):
            if address and isinstance(index, Number):
                return binary("+", value, index)
            return self.loaded(value)
        if isinstance(value, Array) and isinstance(index, Number) and index.value is not None:
            if 0 <= index.value < len(value.items):
                return value.items[int(index.value)]
        if isinstance(value, Array) and isinstance(index, Number) and value.items:
            if all(isinstance(item, Number) for item in value.items):
                first = value.items[0]
                assert isinstance(first, Number)
                return self.unknown(argument.text, f"an element of `{argument.text}`", first.ctype)
        return NOTHING

    def field_expression(self, tree: Tree) -> Value:
        spot = self.spot(tree)
        name = tree.one("field")
        if spot is not None:
            value = self.read(spot)
            if not isinstance(value, Unknown):
                return value
        argument = tree.one("argument")
        owner = self.evaluate(argument) if argument is not None else NOTHING
        if isinstance(owner, Address):
            owner = self.read(Spot(owner.cell, owner.path))
        if name is not None and isinstance(owner, (Struct, Thing)):
            found = owner.fields.get(name.text)
            if found is not None:
                return found
        kind = Kind("")
        if spot is not None and len(spot.path) == 1:
            kind = self.resolve(self.kinds.get(spot.cell, Kind("")))
        if kind.base.endswith("cudaDeviceProp") and name is not None:
            return host_calls.device_property(name.text)
        return Unknown(f"`{tree.text}`")

    def assignment(self, tree: Tree) -> Value:
        left, right, operator = tree.one("left"), tree.one("right"), tree.one("operator")
        if left is None or right is None or operator is None:
            return NOTHING
        value = self.evaluate(right)
        spot = self.spot(left)
        if operator.text != "=":
            old = self.read(spot) if spot is not None else self.evaluate(left)
            value = binary(operator.text[:-1], old, value)
        if spot is None:
            if left.kind == "subscript_expression":
                self.write_somewhere(left)
            return value
        if not spot.path:
            kind = self.resolve(self.kinds.get(spot.cell, Kind("auto")))
            value = self.coerced(value, kind, self.labels.get(spot.cell, ""))
        else:
            old = self.read(spot)
            if isinstance(old, Number):
                value = self.coerced(value, Kind(old.ctype), self.label(spot))
            elif isinstance(old, Struct) and old.type == "dim3":
                value = self.dim3(value) or Unknown(f"`{left.text}`")
        if operator.text == "=":
            value = self.named(value, self.labels.get(spot.cell, "") if not spot.path else str(spot.path[-1]))
        self.write(spot, value)
        return value

    def write_somewhere(self, target: Tree) -> None:
        """A store to an element whose index is not known: every element may have changed."""
        inner: Tree | None = target
        while inner is not None and inner.kind == "subscript_expression":
            inner = inner.one("argument")
        spot = self.spot(inner) if inner is not None else None
        if spot is not None and isinstance(self.read(spot), (Array, Thing)):
            self.forget(spot, f"an element of `{inner.text if inner else ''}`")

    def update(self, tree: Tree) -> Value:
        argument, operator = tree.one("argument"), tree.one("operator")
        spot = self.spot(argument) if argument is not None else None
        if spot is None or argument is None:
            return NOTHING
        old = self.read(spot)
        new = binary("+" if operator is not None and operator.text == "++" else "-", old, whole(1))
        self.write(spot, new)
        return new if tree.text.startswith(("++", "--")) else old

    def new_expression(self, tree: Tree) -> Value:
        type_, declarator = tree.one("type"), tree.one("declarator")
        if type_ is None:
            return NOTHING
        kind = self.resolve(Kind(canonical_type(type_.text)))
        if declarator is not None:
            length = declarator.one("length") or (declarator.kids[0] if declarator.kids else None)
            count = self.evaluate(length) if length is not None else NOTHING
            width = self.width(kind)
            nbytes = None
            if isinstance(count, Number) and width is not None:
                nbytes = build("*", (count.term, constant(width)), "long")
            return Pointer(Block("new", nbytes, "host"), constant(0), kind.text)
        arguments = tree.one("arguments")
        values = tuple(self.evaluate(kid) for kid in arguments.kids) if arguments is not None else ()
        spot = self.new(kind.base, kind, self.constructed(kind, kind.base, values))
        return Address(spot.cell, (), kind.base)

    # Calls

    def call_expression(self, tree: Tree) -> Value:
        function, listed = tree.one("function"), tree.one("arguments")
        chevrons = next((kid for kid in tree.kids if kid.kind == "kernel_call_syntax"), None)
        if function is None or listed is None:
            return NOTHING
        if chevrons is not None:
            return self.kernel_call(tree, function, chevrons, listed)
        if function.kind == "field_expression":
            return self.method_call(tree, function, listed)
        name, template = self.callee(function)
        if name == "":
            target = self.evaluate(function)
            arguments = tuple(self.evaluate(kid) for kid in listed.kids)
            return self.run(target, arguments)
        spot = self.frames[-1].names.get(name)
        if spot is not None:
            target = self.read(spot)
            if isinstance(target, Lambda):
                return self.run(target, tuple(self.evaluate(kid) for kid in listed.kids))
            if isinstance(target, FunctionName):
                name, template = target.name, target.template or template
        if name in ("static_cast", "reinterpret_cast", "const_cast") and function.kind == "template_function":
            type_list = function.one("arguments")
            if type_list is not None and type_list.kids and listed.kids:
                return self.cast(self.evaluate(listed.kids[0]), self.resolve(described(type_list.kids[0])))
        return self.call_named(name, template, None, listed, tree)

    def callee(self, function: Tree) -> tuple[str, tuple[str, ...]]:
        """The name of a called function as written, and its template arguments."""
        if function.kind in ("identifier", "primitive_type", "type_identifier"):
            return function.text, ()
        if function.kind == "template_function":
            name, listed = function.one("name"), function.one("arguments")
            return (name.text if name else ""), self.template_arguments(listed)
        if function.kind in ("qualified_identifier", "sized_type_specifier"):
            inner = function
            while inner.kind == "qualified_identifier" and (deeper := inner.one("name")) is not None:
                inner = deeper
            template: tuple[str, ...] = ()
            if inner.kind in ("template_function", "template_type"):
                template = self.template_arguments(inner.one("arguments"))
                last = inner.one("name")
                prefix = function.text[: inner.start - function.start]
                return "".join((prefix + (last.text if last else "")).split()), template
            return "".join(function.text.split()) if function.kind != "sized_type_specifier" else function.text, ()
        if function.kind == "parenthesized_expression" and function.kids and function.kids[-1].kind == "identifier":
            return function.kids[-1].text, ()
        return "", ()

    def call_named(
        self,
        name: str,
        template: tuple[str, ...],
        values: tuple[Value, ...] | None,
        listed: Tree | None,
        tree: Tree | None = None,
    ) -> Value:
        """Call a function by name, with values or with the trees of its arguments."""
        plain = name.rsplit("::", 1)[-1]
        count = len(listed.kids) if listed is not None else len(values or ())
        candidates = self.overloads(plain, count, template) if not name.startswith("std::") else []
        if len(candidates) > 1 and values is None and listed is not None:
            values = tuple(self.argument(kid) for kid in listed.kids)
        chosen = self.best_overload(candidates, values or ())
        if chosen is not None:
            return self.call_function(*chosen, template, values, listed)
        trees = tuple(listed.kids) if listed is not None else ()
        if values is None:
            values = tuple(self.argument(kid) for kid in trees)
        if self.state is None:
            return NOTHING
        kind = self.resolve(Kind(canonical_type(name)))
        if canonical_type(kind.base) in SIZEOF or self.record(kind.base) is not None:
            return self.constructed(kind, "", values)
        for library in LIBRARIES:
            if (found := library.call(self, name, template, values)) is not None:
                return found
        launched = self.runtime_launch(plain, values, tree)
        if launched is not None:
            return launched
        answer = host_calls.call(self, name, template, values, trees)
        if answer is not None:
            return answer
        return self.unknown_call(plain, values, trees)

    def unknown_call(self, name: str, values: tuple[Value, ...], trees: tuple[Tree, ...]) -> Value:
        """A function whose text is not there: what it is given the address of may be anything afterwards."""
        for place, value in enumerate(values):
            if isinstance(value, Address) and not host_calls.only_reads(name):
                path = value.path[:-1] if value.path and isinstance(value.path[-1], int) else value.path
                self.forget(Spot(value.cell, path), f"`{self.labels.get(value.cell, '')}`, which `{name}` may set")
            elif place < len(trees) and trees[place].kind in ("identifier", "field_expression"):
                # It may take a reference; few do, so the value stands, but it is not certain any more.
                if isinstance(value, (Number, Struct, Pointer)) and host_calls.takes_references(name):
                    if self.state is not None and self.spot(trees[place]) is not None:
                        self.state.sure = False
            if isinstance(value, (Lambda,)) and self.state is not None:
                # It may be called, once or often.
                before = self.state.copy()
                self.state.sure = False
                self.run(value)
                self.state = self.joined(self.state, before, None)
        if host_calls.returns_status(name):
            return whole(0)
        return Unknown(f"`{name}(...)`")

    def overloads(self, name: str, count: int, template: tuple[str, ...]) -> list[tuple[Unit, FunctionDef]]:
        """The functions of the program that a call with so many arguments may mean; those of this text first."""
        here = self.frames[-1].unit
        for unit in (here, *(other for other in self.units if other is not here)):
            fitting = [
                (unit, function)
                for function in unit.scope.functions.get(name, ())
                if function.record is None
                and (unit is here or not function.static)
                and (not template or function.template)
                and sum(p.value is None and p.name != "..." for p in function.parameters)
                <= count
                <= len(function.parameters)
            ]
            if fitting:
                return fitting
        return []

    def best_overload(
        self, candidates: list[tuple[Unit, FunctionDef]], values: tuple[Value, ...]
    ) -> tuple[Unit, FunctionDef] | None:
        """The one whose parameters fit best; None where nobody can tell."""
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
        scores = [self.fit(function, values) for _, function in candidates]
        best = max(scores)
        return candidates[scores.index(best)] if scores.count(best) == 1 else None

    def fit(self, function: FunctionDef, values: tuple[Value, ...]) -> int:
        """How well values fit a function's parameters; a template fits a little less than a plain function."""
        names = {name for name, _, _ in function.template}
        score = 0 if function.template else 1
        for parameter, value in zip(function.parameters, values, strict=False):
            kind = self.resolve(parameter.kind)
            if isinstance(value, (Pointer, Address)):
                score += 4 if kind.pointers else -20
                if kind.pointers and kind.base == value.element.rstrip("*"):
                    score += 4
                elif kind.base not in names and kind.base != "void" and value.element != "void":
                    score -= 10
            elif isinstance(value, Number):
                if kind.pointers:
                    score -= 20
                elif kind.base == value.ctype:
                    score += 4
                elif kind.base in SIZEOF:
                    score += 1 if (kind.base in FLOATING) == value.floating else 0
                elif kind.base not in names:
                    score -= 10
            elif isinstance(value, (Struct, Thing)) and isinstance(value, Struct) and value.type == kind.base:
                score += 4
        return score

    def call_function(
        self,
        unit: Unit,
        function: FunctionDef,
        template: tuple[str, ...],
        values: tuple[Value, ...] | None,
        listed: Tree | None,
        this: Spot | None = None,
    ) -> Value:
        trees = tuple(listed.kids) if listed is not None else ()
        spots: list[Spot | None] = [None] * len(function.parameters)
        if values is None:
            gathered: list[Value] = []
            for place, tree in enumerate(trees):
                parameter = function.parameters[place] if place < len(function.parameters) else None
                if parameter is not None and parameter.kind.reference and not parameter.kind.const:
                    spots[place] = self.spot(tree)
                bound = spots[place]
                gathered.append(self.read(bound) if bound is not None else self.argument(tree))
            values = tuple(gathered)
        if self.state is None or len(self.frames) > MAX_CALLS:
            return Unknown("a recursion that is too deep")
        frame = _Frame(unit, function.name)
        frame.this, frame.record = this, function.record
        self.deduce(function, template, values, frame)
        self.frames.append(frame)
        try:
            for place, parameter in enumerate(function.parameters):
                bound = spots[place]
                if bound is not None:
                    frame.names[parameter.name] = bound
                    continue
                if place < len(values):
                    value = values[place]
                elif parameter.value is not None:
                    value = self.evaluate(parameter.value)
                else:
                    value = NOTHING
                kind = self.resolve(parameter.kind)
                held = self.named(self.coerced(value, kind, parameter.name), parameter.name)
                frame.names[parameter.name] = self.new(parameter.name, kind, held)
        finally:
            self.frames.pop()
        self.entered.add((id(unit), function.start))
        return self.in_frame(frame, function.body)

    def deduce(
        self, function: FunctionDef, template: tuple[str, ...], values: tuple[Value, ...], frame: _Frame
    ) -> None:
        """The template arguments of a call."""
        for place, (name, _, default) in enumerate(function.template):
            if place < len(template):
                frame.types[name] = template[place]
                continue
            for parameter, value in zip(function.parameters, values, strict=False):
                if parameter.kind.base != name:
                    continue
                if isinstance(value, (Pointer, Address)) and parameter.kind.pointers and value.element != "void":
                    frame.types[name] = value.element
                elif isinstance(value, Number) and not parameter.kind.pointers:
                    frame.types[name] = value.ctype
                elif isinstance(value, Struct) and not parameter.kind.pointers:
                    frame.types[name] = value.type
                break
            if name not in frame.types and default is not None:
                frame.types[name] = default.text

    def in_frame(self, frame: _Frame, body: Tree) -> Value:
        """Run a body in its frame; what it returns."""
        sure = self.state.sure if self.state is not None else False
        self.frames.append(frame)
        try:
            if body.kind == "compound_statement":
                self.block(body)
            else:
                self.statement(body)
        finally:
            self.frames.pop()
        ends = list(frame.returns)
        if self.state is not None:
            ends.append((self.state, NOTHING))
        merged: _State | None = None
        value: Value = NOTHING
        for number, (state, returned) in enumerate(ends):
            if number == 0:
                merged, value = state, returned
                continue
            merged = self.joined(merged, state, None)
            if value != returned:
                value = self.either(value, returned, None, "what a function returns")
        self.state = merged
        if self.state is not None and len(ends) > 1:
            self.state.sure = self.state.sure or sure
        return value

    def method_call(self, tree: Tree, function: Tree, listed: Tree) -> Value:
        owner_tree, label = function.one("argument"), function.one("field")
        if owner_tree is None or label is None:
            return NOTHING
        spot = self.spot(owner_tree)
        owner = self.read(spot) if spot is not None else self.evaluate(owner_tree)
        if isinstance(owner, Address):
            spot = Spot(owner.cell, owner.path)
            owner = self.read(spot)
        name = label.text
        template: tuple[str, ...] = ()
        if label.kind in ("template_method", "dependent_name"):
            inner = label if label.kind == "template_method" else (label.kids[-1] if label.kids else label)
            plain = inner.one("name") or (inner.kids[0] if inner.kids else None)
            name = plain.text if plain is not None else name.split("<")[0]
            template = self.template_arguments(inner.one("arguments"))
        if isinstance(owner, Struct) and owner.type:
            for unit in self.units:
                for candidate in unit.scope.functions.get(name, ()):
                    if candidate.record == owner.type and len(candidate.parameters) >= len(listed.kids):
                        return self.call_function(unit, candidate, template, None, listed, spot)
        values = tuple(self.evaluate(kid) for kid in listed.kids)
        if self.state is None:
            return NOTHING
        if isinstance(owner, Struct) and isinstance(owner.fields.get(name), (Lambda, FunctionName)):
            return self.run(owner.fields[name], values)
        for library in (host_calls.CONTAINERS, *LIBRARIES):
            if (found := library.method(self, owner, name, template, values)) is not None:
                if isinstance(found, Thing) and found.kind == "changed" and spot is not None:
                    self.write(spot, found.fields["value"])
                    return found.fields.get("result", NOTHING)
                return found
        for value in values:
            if isinstance(value, Address):
                self.forget(
                    Spot(value.cell, value.path), f"`{self.labels.get(value.cell, '')}`, which `{name}` may set"
                )
        return Unknown(f"`{tree.text if len(tree.text) < 40 else name + '(...)'}`")

    # Launches

    def kernel_call(self, tree: Tree, function: Tree, chevrons: Tree, listed: Tree) -> Value:
        name, template = self.callee(function)
        name = name.rsplit("::", 1)[-1]
        given: tuple[str, ...] | None = template or None
        spot = self.frames[-1].names.get(name) if name else None
        target = self.read(spot) if spot is not None else self.evaluate(function) if not name else None
        if isinstance(target, FunctionName):
            name, given = target.name, target.template or given
        elif name in self.frames[-1].types:
            name = self.frames[-1].types[name]
        parts = [self.evaluate(kid) for kid in chevrons.kids]
        arguments = tuple(self.evaluate(kid) for kid in listed.kids)
        if self.state is None or not name:
            return NOTHING
        self.record_launch(name, given, parts, arguments, tree.start)
        return NOTHING

    def record_launch(
        self,
        name: str,
        template: tuple[str, ...] | None,
        parts: Sequence[Value],
        arguments: tuple[Value, ...] | None,
        start: int,
    ) -> None:
        assert self.state is not None
        if name not in self.kernels:
            return
        sizes = [self.dim3(part) for part in parts[:2]]
        numbers = [
            tuple(value for axis in DIM3 if isinstance(value := size.fields[axis], Number))
            if size is not None
            else None
            for size in sizes
        ]
        grid = numbers[0] if numbers and numbers[0] is not None and len(numbers[0]) == 3 else None
        block = numbers[1] if len(numbers) > 1 and numbers[1] is not None and len(numbers[1]) == 3 else None
        smem = parts[2] if len(parts) > 2 else whole(0)
        shared = smem if isinstance(smem, Number) else None
        sure = self.state.sure and self.from_main and self.reached
        terms = [number.term for size in (grid, block) for number in size or ()]
        terms += [shared.term] if shared is not None else []
        terms += [value.term for value in arguments or () if isinstance(value, Number)]
        assumed = any(term.assumed for term in terms) or any(term.assumed for term, _ in self.state.conditions)
        place = self.frames[-1].unit.text.place(start)
        known = (name, template, place, tuple(term.key for term in terms), _pointers(arguments))
        if known in self.seen:
            return
        self.seen.add(known)
        self.started.add(name)
        self.launches.append(
            HostLaunch(
                name, template, grid, block, shared, arguments, place.path, place.offset, self.entry,
                sure and not assumed, self.state.conditions, self.reached, self.from_main,
            )
        )  # fmt: skip

    def runtime_launch(self, name: str, values: tuple[Value, ...], tree: Tree | None) -> Value | None:
        """`cudaLaunchKernel(function, grid, block, arguments, smem, stream)` and its relatives."""
        start = tree.start if tree is not None else 0
        if self.state is None:
            return None
        if name in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel") and len(values) >= 4:
            function = self.function_of(values[0])
            if function is not None:
                smem = values[4] if len(values) > 4 else whole(0)
                arguments = self.packed(values[3])
                self.record_launch(
                    function.name, function.template or None, (values[1], values[2], smem), arguments, start
                )
            return whole(0)
        if name == "cudaLaunchKernelEx" and len(values) >= 2:
            function = self.function_of(values[1])
            config = values[0]
            if isinstance(config, Address):
                config = self.read(Spot(config.cell, config.path))
            if function is not None and isinstance(config, Struct):
                parts = tuple(config.fields.get(part, NOTHING) for part in ("gridDim", "blockDim", "dynamicSmemBytes"))
                if isinstance(parts[2], Unknown):
                    parts = (parts[0], parts[1], whole(0))
                self.record_launch(function.name, function.template or None, parts, tuple(values[2:]), start)
            return whole(0)
        return None

    def function_of(self, value: Value) -> FunctionName | None:
        return value if isinstance(value, FunctionName) else None

    def packed(self, value: Value) -> tuple[Value, ...] | None:
        """The values behind an array of addresses."""
        if isinstance(value, Address):
            value = self.read(Spot(value.cell, value.path[:-1] if value.path and value.path[-1] == 0 else value.path))
        if not isinstance(value, Array):
            return None
        found: list[Value] = []
        for item in value.items:
            if isinstance(item, Address):
                found.append(self.read(Spot(item.cell, item.path)))
            elif isinstance(item, Pointer) and item.block is None and item is value.items[-1]:
                break
            else:
                found.append(NOTHING)
        return tuple(found)


def _writes(tree: Tree, label: str) -> bool:
    """Whether a text may change a variable."""
    for part in tree.walk():
        if part.kind in ("assignment_expression", "update_expression", "pointer_expression", "call_expression"):
            target = part.one("left") or part.one("argument") or part.one("arguments")
            if target is not None and re.search(rf"\b{re.escape(label)}\b", target.text):
                return True
    return False


def _pointers(arguments: tuple[Value, ...] | None) -> tuple[str, ...]:
    """What tells the buffers of one launch from those of another."""
    found = []
    for value in arguments or ():
        if isinstance(value, Pointer):
            nbytes = value.block.nbytes.key if value.block is not None and value.block.nbytes is not None else ""
            found.append(f"{nbytes}+{value.offset.key}")
    return tuple(found)


def _number_text(value: Number) -> str:
    assert value.value is not None
    if value.ctype == "bool":
        return "true" if value.value else "false"
    return str(int(value.value)) if float(value.value).is_integer() else repr(value.value)


@frozen(eq=False)
class HostProgram:
    """The launches that were found from one text."""

    launches: tuple[HostLaunch, ...]
    complete: bool = True
    reason: str = ""
    constants: frozenset[str] = frozenset()
    """Names of the macros and variables at file scope, headers included."""


def _calls(unit: Unit) -> dict[str, set[str]]:
    """Function -> names that it calls or mentions."""
    found: dict[str, set[str]] = {}
    for name, functions in unit.scope.functions.items():
        used = found.setdefault(name, set())
        for function in functions:
            used |= set(_NAME.findall(function.source[function.node.start_byte : function.node.end_byte]))
    return found


_NAME = re.compile(r"[A-Za-z_]\w*")
_STARTS = re.compile(r"<<<|cudaLaunch\w*Kernel|cuLaunchKernel")


def _launching(units: Sequence[Unit]) -> frozenset[str]:
    """Functions that start a kernel, directly or through others."""
    calls: dict[str, set[str]] = {}
    for unit in units:
        for name, used in _calls(unit).items():
            calls.setdefault(name, set()).update(used)
    starting = {
        name
        for unit in units
        for name, functions in unit.scope.functions.items()
        for function in functions
        if _STARTS.search(function.source, function.node.start_byte, function.node.end_byte)
    }
    grew = True
    while grew:
        more = {name for name, used in calls.items() if name not in starting and used & starting}
        grew = bool(more)
        starting |= more
    return frozenset(starting)


def interpret(
    units: Sequence[Unit],
    kernels: frozenset[str],
    own_path: str,
    given: Mapping[str, Mapping[str, object]] | None = None,
    *,
    entries: bool = True,
) -> HostProgram:
    """Every launch of the program that `units` make, from `main` and with `entries` from the functions that nobody calls."""
    launching = _launching(units)
    machine = Machine(units, kernels, launching)
    machine.given = given or {}
    main = next(((unit, f) for unit in units for f in unit.scope.functions.get("main", ()) if f.record is None), None)

    def unseen() -> bool:
        return len(machine.started) < len(kernels)

    if main is not None and "main" in launching:
        machine.enter(*main, arguments=1)
        if unseen() and main[1].parameters:
            # What it does with arguments is not known; that it may be given some is.
            machine.enter(*main, arguments=None)
    if not entries:
        return HostProgram(tuple(machine.launches))
    called: set[str] = set()
    for unit in units:
        for name, used in _calls(unit).items():
            called |= used - {name}
    for reached in (True, False):
        for unit in units:
            for name, functions in unit.scope.functions.items():
                if name not in launching or name == "main":
                    continue
                for function in functions:
                    if (id(unit), function.start) in machine.entered or machine.total_steps > MAX_TOTAL_STEPS:
                        continue
                    starts = _STARTS.search(function.source, function.node.start_byte, function.node.end_byte)
                    if (reached and name in called) or not (reached or starts) or not unseen():
                        continue
                    if main is not None and unit.text.place(function.start).path != own_path:
                        continue
                    machine.enter(unit, function, arguments=None, reached=reached)
    return HostProgram(tuple(machine.launches))


@lru_cache(maxsize=8)
def _stripped(model: SourceModel) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A text without its kernels and device functions, and where what is left stood: `(place here, place there)`."""
    cut = [(kernel.start, kernel.end) for kernel in model.kernels]
    cut += [(function.start, function.end) for function in model.functions if not function.is_host]
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    at = length = 0
    conditionals = (
        [span for span in model.skeleton.directives if _CONDITIONAL.match(model.text, span.start)] if cut else []
    )
    starts = [span.start for span in conditionals]
    for start, end in sorted(cut):
        if start < at:
            continue
        kept = model.text[at:start]
        within = conditionals[bisect_left(starts, start) : bisect_left(starts, end)]
        inner = [model.text[span.start : span.end] for span in within]
        # Conditionals stay, for they may not all end where they began.
        bridge = "".join(f"\n{line}" for line in inner) + "\n" if inner else " "
        places.append((length, at))
        pieces += [kept, bridge]
        length += len(kept) + len(bridge)
        at = end
    places.append((length, at))
    pieces.append(model.text[at:])
    return "".join(pieces), tuple(places)


_CONDITIONAL = re.compile(r"#\s*(?:if|ifdef|ifndef|elif|else|endif)\b")


MAX_PROGRAMS = 3
"""Programs around a text without a `main` that are looked at."""
MAX_SIBLINGS = 16
"""Files of its folder that may be parts of such a program."""


@lru_cache(maxsize=24)
def _program(
    text: str, path: str, kernels: frozenset[str], given: Given, project: ProjectTexts | None, generation: int
) -> HostProgram:
    """Of a text without its kernels. `generation` is the project's: another one makes another entry of the cache."""
    view = None if project is None else OverlaidTexts(project, path, text)
    prepared = host_text(text, path, view, None if view is None else view.defines)
    if prepared is None:
        return HostProgram((), False, "the host code is too long to be followed")
    passed = {function: dict(parameters) for function, parameters in given}
    own = Unit(path, prepared, file_scope(prepared.text))
    launches: list[HostLaunch] = []
    if view is not None and "main" not in own.scope.functions and kernels:
        for units, only in _programs_around(own, view):
            found = interpret(units, kernels, path, passed, entries=False).launches
            # Where several programs may be meant, none is what certainly happens.
            launches += found if only else (evolve(launch, certain=False) for launch in found)
            if not kernels - {launch.kernel for launch in launches}:
                break
    if kernels - {launch.kernel for launch in launches}:
        launches += interpret((own,), kernels, path, passed).launches
    if view is not None and kernels - {launch.kernel for launch in launches}:
        for file in view.includers(path)[:1]:
            if (unit := _unit_at(file, view)) is not None and "main" not in unit.scope.functions:
                launches += interpret((unit,), kernels, file, passed).launches
    constants = frozenset(own.text.constants) | own.scope.globals.keys() | own.scope.enumerators.keys()
    return HostProgram(tuple(_with_line(launch, path, view) for launch in launches), constants=constants)


def _programs_around(own: Unit, project: ProjectTexts) -> Iterator[tuple[tuple[Unit, ...], bool]]:
    """The programs that a text without a `main` is a part of, and whether there is one alone.

    They include the text, or lie in its folder and call its functions.
    """
    files = [file for file in project.includers(own.path) if _MAIN.search(project.text(file) or "")]
    found = False
    for file in files[:MAX_PROGRAMS]:
        unit = _unit_at(file, project)
        if unit is not None and "main" in unit.scope.functions:
            found = True
            yield (unit,), len(files) == 1
    if found:
        return
    units: list[Unit] = []
    mains: list[tuple[Unit, str]] = []
    for file in project.siblings(own.path):
        text = project.text(file)
        if text is None or len(units) + len(mains) >= MAX_SIBLINGS:
            continue
        unit = _unit_at(file, project)
        if unit is not None and "main" in unit.scope.functions and _MAIN.search(text):
            mains.append((unit, text))
        elif unit is not None:
            units.append(unit)
    if len(mains) > 1:
        # Of several programs in one folder, those that name a function of this text.
        names = [name for name, functions in own.scope.functions.items() if any(not f.static for f in functions)]
        called = re.compile(rf"\b(?:{'|'.join(map(re.escape, names)) or '$^'})\b")
        mains = [(unit, text) for unit, text in mains if called.search(text)]
    for unit, _ in mains[:MAX_PROGRAMS]:
        yield (unit, own, *units), len(mains) == 1


_MAIN = re.compile(r"\bmain\s*\(")


def _unit_at(file: str, project: ProjectTexts) -> Unit | None:
    text = project.text(file)
    prepared = None if text is None else host_text(text, file, project, project.defines)
    return None if prepared is None else Unit(file, prepared, file_scope(prepared.text))


def _with_line(launch: HostLaunch, path: str, project: ProjectTexts | None) -> HostLaunch:
    if launch.path == path or project is None:
        return launch
    return evolve(launch, line=(project.text(launch.path) or "").count("\n", 0, launch.offset) + 1)


def host_program(
    model: SourceModel, path: str = "", project: ProjectTexts | None = None, given: Given = ()
) -> HostProgram:
    """The launches of a text's kernels by its own program. Offsets are those of the text's own files.

    `given` is what a program around the text passes: function -> parameter -> value, as `python_calls` reads it.
    """
    kernels = frozenset(kernel.name for kernel in model.kernels)
    text, places = _stripped(model)
    found = _program(text, path, kernels, given, project, project.generation if project is not None else 0)
    return _placed(found, path, places)


@lru_cache(maxsize=8)
def _placed(found: HostProgram, path: str, places: tuple[tuple[int, int], ...]) -> HostProgram:
    """The launches with offsets of the whole text instead of the text without its kernels."""
    starts = [here for here, _ in places]
    launches = []
    for launch in found.launches:
        if launch.path == path:
            here, there = places[bisect_right(starts, launch.offset) - 1]
            launch = evolve(launch, offset=launch.offset - here + there)
        launches.append(launch)
    return evolve(found, launches=tuple(launches))
