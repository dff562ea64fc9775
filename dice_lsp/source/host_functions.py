"""How host code calls: its own functions, methods and lambdas, libraries, and functions whose text is not there."""

import re
from collections.abc import Mapping

from dice_lsp.source import host_calls
from dice_lsp.source.expressions import SIZEOF, canonical_type
from dice_lsp.source.host_launches import Launches
from dice_lsp.source.host_libraries import LIBRARIES
from dice_lsp.source.host_machine import MAX_CALLS, Frame, State, Unit
from dice_lsp.source.host_tree import FunctionDef, Kind, Tree, described, parameters_of
from dice_lsp.source.host_values import (
    FLOATING,
    NOTHING,
    Address,
    FunctionName,
    Lambda,
    Number,
    Pointer,
    Spot,
    Struct,
    Thing,
    Unknown,
    Value,
    whole,
)
from dice_lsp.source.tokens import without_comments

_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_STATEMENTS = {"for", "while", "if", "switch", "return", "sizeof"}


class Functions(Launches):
    """Follows calls into what they call, with a frame for each."""

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

    def call_named(
        self,
        name: str,
        template: tuple[str, ...],
        values: tuple[Value, ...] | None,
        listed: Tree | None,
        tree: Tree | None = None,
    ) -> Value:
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
        self.note("called", plain, values)
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
        if self.from_main and function.record is None:
            names = tuple(parameter.name for parameter in function.parameters)
            path = unit.text.place(function.start).path
            self.traffic.add("call", function.name, values, self.state.conditions, path, names)
        if self.only_computes(unit, function, values):
            return NOTHING
        frame = Frame(unit, function.name)
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

    def only_computes(self, unit: Unit, function: FunctionDef, values: tuple[Value, ...]) -> bool:
        """Whether a call changes nothing that is followed: it answers nothing, and only reads and writes arrays' elements.

        CPU versions of kernels are such functions, and their loops would use up the budget.
        """
        if function.returns.base != "void" or function.returns.pointers or function.template or function.record:
            return False
        if not all(isinstance(value, Number) or (isinstance(value, Pointer) and value.block) for value in values):
            return False
        if any(parameter.kind.reference for parameter in function.parameters):
            return False
        text = without_comments(function.source[function.node.start_byte : function.node.end_byte])
        words = set(_WORD.findall(text))
        if "for" not in words or words & unit.scope.globals.keys() or function.name in self.launching:
            return False
        return all(host_calls.is_arithmetic(name) for name in set(_CALLED.findall(text)) - _STATEMENTS)

    def deduce(self, function: FunctionDef, template: tuple[str, ...], values: tuple[Value, ...], frame: Frame) -> None:
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

    def in_frame(self, frame: Frame, body: Tree) -> Value:
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
        merged: State | None = None
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

    def run(self, function: Value, arguments: tuple[Value, ...] = (), types: Mapping[str, str] | None = None) -> Value:
        if isinstance(function, FunctionName):
            return self.call_named(function.name, function.template, arguments, None)
        if not isinstance(function, Lambda) or self.state is None:
            return NOTHING
        outer = self.frames[-1]
        frame = Frame(function.unit or outer.unit, outer.name)
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
