"""What the names in host code stand for: places in memory, constants, enumerators, functions, template arguments."""

import re

from attrs import evolve

from dice_lsp.source import host_calls
from dice_lsp.source.expressions import canonical_type
from dice_lsp.source.host_machine import Frame, Unit
from dice_lsp.source.host_tree import Kind, Tree, copied, described
from dice_lsp.source.host_values import (
    NOTHING,
    Address,
    Array,
    FunctionName,
    Number,
    Spot,
    Thing,
    Unknown,
    Value,
    binary,
    variable,
    whole,
)
from dice_lsp.source.host_variables import Variables
from dice_lsp.source.syntax import body_tree, named


class Names(Variables):
    """Finds the places and values that names stand for."""

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
            frame = Frame(candidate, outer.name)
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
        frame = Frame(self.frames[-1].unit, self.frames[-1].name)
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


def _number_text(value: Number) -> str:
    assert value.value is not None
    if value.ctype == "bool":
        return "true" if value.value else "false"
    return str(int(value.value)) if float(value.value).is_integer() else repr(value.value)
