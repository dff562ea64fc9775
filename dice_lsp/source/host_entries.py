"""Where the interpretation of host code starts: at `main`, or at a function with nothing said of its parameters."""

from attrs import evolve

from dice_lsp.source.host_machine import Frame, OutOfBudget, State, Unit
from dice_lsp.source.host_statements import Statements
from dice_lsp.source.host_tree import FunctionDef
from dice_lsp.source.host_values import Number, Thing, Value, unknown_term, whole


class Interpreter(Statements):
    """Interprets one program; it may be entered at several functions, one after the other."""

    def enter(self, unit: Unit, function: FunctionDef, *, arguments: int | None, reached: bool = True) -> None:
        """Run one function of the program: `main` with that many words on its command line, any other freely."""
        self.state = State({}, (), True)
        self.globals.clear()
        self.traffic.clear()
        known = len(self.launches)
        self.steps = 0
        self.entry, self.reached = function.name, reached
        self.from_main = function.name == "main" and function.record is None
        frame = Frame(unit, function.name)
        self.frames = [frame]
        try:
            for types in self.template_choices(unit, function):
                self.state = State({}, (), self.from_main)
                frame.names = {}
                frame.types = types
                self.bind_free(function, frame, arguments)
                self.entered.add((id(unit), function.start))
                self.block(function.body)
                frame.returns.clear()
        except (OutOfBudget, RecursionError):
            pass  # what it did until then is known, and what was compared by then
        self.state, self.frames = None, []
        for number in range(known, len(self.launches)):
            launch = self.launches[number]
            found = tuple(self.traffic.references(launch.kernel, launch.arguments, launch.conditions, self.launching))
            self.launches[number] = evolve(launch, references=found) if found else launch

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

    def bind_free(self, function: FunctionDef, frame: Frame, arguments: int | None) -> None:
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
