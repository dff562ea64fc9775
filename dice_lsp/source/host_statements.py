"""What the statements of host code do, on both sides of a branch where nobody knows which is taken.

A loop is followed turn by turn while it is known that there is another one and the budget lasts; after that, what it
changes is unknown.
"""

import re

from dice_lsp.source.host_functions import Functions
from dice_lsp.source.host_machine import FEW_TURNS, IDLE_TURNS, MAX_TURNS, State
from dice_lsp.source.host_tree import Kind, Tree, declarations
from dice_lsp.source.host_values import NOTHING, Array, Number, Pointer, Thing, Unknown, Value, binary


class Statements(Functions):
    """Runs statements, one method for each kind that needs more than a line."""

    def block(self, tree: Tree) -> None:
        frame = self.frames[-1]
        names = frame.names
        frame.names = dict(names)
        for kid in tree.kids:
            if self.state is None:
                break
            self.statement(kid)
        frame.names = names

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
                value = self.evaluate(tree.kids[0]) if tree.kids else NOTHING
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
                    self.write(spot, self.evaluate(right))
        if not any(part.kind == "assignment_expression" for part in tree.walk()):
            self.evaluate(tree)

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
        ended: list[State] = []
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
        merged: State | None = None
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
            element = target is not None and target.kind == "subscript_expression"
            while target is not None and target.kind in (
                "subscript_expression",
                "field_expression",
                "parenthesized_expression",
            ):
                target = target.one("argument") or (target.kids[0] if target.kids else None)
            if target is None or target.kind != "identifier":
                continue
            spot = self.find(target.text)
            if spot is not None and not (element and isinstance(self.read(spot), Pointer)):
                # An element of an array in allocated memory is not followed, and the pointer stays as it is.
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
            ended: list[State] = []
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
        merged: State | None = None
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


def _writes(tree: Tree, label: str) -> bool:
    """Whether a text may change a variable."""
    for part in tree.walk():
        if part.kind in ("assignment_expression", "update_expression", "pointer_expression", "call_expression"):
            target = part.one("left") or part.one("argument") or part.one("arguments")
            if target is not None and re.search(rf"\b{re.escape(label)}\b", target.text):
                return True
    return False
