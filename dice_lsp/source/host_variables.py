"""How the variables of host code come to be: declarations, initialisers, conversions to the type of a variable.

A constant that is given a name becomes that name, for the sizes of a launch are best told in the program's own words.
"""

from attrs import evolve

from dice_lsp.source import host_calls
from dice_lsp.source.expressions import SIZEOF, canonical_type
from dice_lsp.source.host_libraries import LIBRARIES
from dice_lsp.source.host_machine import DIM3, Machine
from dice_lsp.source.host_tree import Declared, Kind, Record, Tree, declarations, described
from dice_lsp.source.host_values import (
    FLOATING,
    NOTHING,
    Address,
    Array,
    Block,
    Number,
    Pointer,
    Spot,
    Struct,
    Thing,
    Unknown,
    Value,
    alias,
    binary,
    build,
    constant,
    convert,
    truth,
    unknown_term,
    variable,
    whole,
)


class Variables(Machine):
    """Gives variables their values and types."""

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
