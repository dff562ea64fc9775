"""What a program's host code launches, found by abstract interpretation.

The interpreter starts at `main` (with no arguments on the command line), else at each function that nobody calls, with
its parameters as free sizes. It follows calls, takes the side of an `if` that its condition says, both sides where the
condition is not known, and joins what they leave; loops are run while their condition is known and the budget lasts.
What it cannot know becomes a name of its own, so that `grid = (n + 255) / 256` stays true for an `n` without a value.
Nothing is executed: the text is data.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from attrs import evolve, frozen

from dice_lsp.source.host_entries import Interpreter
from dice_lsp.source.host_machine import HostLaunch, Unit
from dice_lsp.source.host_tree import file_scope
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.preprocess import host_text
from dice_lsp.source.project import OverlaidTexts, ProjectTexts

Given = tuple[tuple[str, tuple[tuple[str, object], ...]], ...]


MAX_TOTAL_STEPS = 80_000
"""Of all entries of a program together."""


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
    machine = Interpreter(units, kernels, launching)
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
