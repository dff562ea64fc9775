"""What the expressions of host code are worth, and what they do to variables."""

import re

from attrs import evolve

from dice_lsp.source import host_calls
from dice_lsp.source.expressions import SIZEOF, canonical_type
from dice_lsp.source.host_names import Names
from dice_lsp.source.host_tree import Kind, Tree, described
from dice_lsp.source.host_values import (
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
    Text,
    Thing,
    Unknown,
    Value,
    binary,
    build,
    common_type,
    constant,
    truth,
    whole,
)


class Expressions(Names):
    """Evaluates expressions, one method for each kind that the grammar has."""

    def evaluate(self, tree: Tree) -> Value:
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

    def argument(self, tree: Tree) -> Value:
        """What a call is given: an array decays to the address of its first element."""
        value = self.evaluate(tree)
        if isinstance(value, Array) and tree.kind in ("identifier", "field_expression", "subscript_expression"):
            spot = self.spot(tree)
            if spot is not None and self.read(spot) == value:
                return Address(spot.cell, (*spot.path, 0), value.element or "void")
        return value

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
