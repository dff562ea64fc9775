"""What the outputs of a case should be: from a CPU function of the file, a PyTorch expression, or the accepted kernel.

Expected values are computed before they are compared and stay in this process's memory, where no kernel can reach
them. Beside each value a yardstick measures its sensitivity: the reference is run again with inputs moved by a small
random relative step, and the change per unit step says how much rounding may matter (see `worker.tolerance`). One input
at a time is changed to count what follows from it, which says how many terms an output is made from.

Second opinions are asked for only where a kernel does not agree with the first: the reference in single precision, with
fused multiply-adds, with inputs moved by a rounding; the accepted kernel in double precision; the reference built to
stop where C leaves the result open.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import evolve, field, frozen

from dice_lsp.records import BufferSpec, CompileFailed, Kernel, Parameter, Reference, Role
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.kernels import Function, parse
from dice_lsp.source.references import matched_parameters
from dice_lsp.source.slice import device_slice
from dice_lsp.source.tokens import without_comments
from dice_lsp.worker.arguments import POISON_BYTES, Bound, BoundBuffer, Distribution, scalar_bytes
from dice_lsp.worker.elements import FLOAT32, FLOAT64, Array, Element, Kind, element_of
from dice_lsp.worker.launch import (
    Argument,
    Backend,
    BufferArgument,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Prepared,
    Ran,
    ScalarArgument,
    Source,
)
from dice_lsp.worker.torch_expression import ExpressionFailed, evaluate_torch

_FINE_STEP = 2.0**-20
"""Relative step of the inputs for a reference in double precision: far above its rounding, small for any curvature."""
_COARSE_STEP = 2.0**-10
"""The same for one in single precision, whose own rounding must stay small beside the change."""
_SHIFTS = 2
_EDGE_STEP = 2.0**-22
"""Relative step of the inputs that a few roundings of a float may be mistaken for; sums round more, see `edge_step`."""
_EDGE_PAIRS = 4
"""How often inputs are moved by `_EDGE_STEP`, each time one way and then the other."""
_WHOLE = 2.0**11
"""Whole numbers below this are exact in every float type, and so are their sums and products as far as they are tried."""
_POKED_ELEMENTS = 20_000
_POKED_ELEMENTS_EMULATED = 5_000
"""A kernel on the host takes a hundred times as long as a function."""
_POKED_BUFFERS = 4
_TELLING_TERMS = 16
"""Sizes below this say little of how many terms there are at other sizes."""
_EMULATED_THREADS = 1 << 18
_EMULATED_BYTES = 64 << 20
_MAX_FAILED_CASES = 3
_TORCH_CHOOSES = re.compile(
    r"relu|elu|clamp|clip|max|min|where|[<>?]|sort|topk|\bif\b|sign|hard|soft|thresh|nan_to|round|floor|ceil|trunc|long|int"
)
"""Parts of an expression that compare numbers, and so may keep or drop a NaN."""
_SMOOTH = (
    r"(?:std::)?(?:sqrt|rsqrt|fma|exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sinh|cosh|tanh|erf|erfc|fabs)f?"
)
"""Functions of C that pass a NaN on."""

_CONVERTS = re.compile(
    r"\(\s*(?:signed|unsigned|char|short|int|long|u?int\d+_t|size_t)(?:\s+\w+)*\s*\)|static_cast|\bl?l?r(?:ound|int)f?\s*\("
)
"""What turns a float into an integer in C."""


@frozen
class BadReference:
    """The reference itself cannot be used; `reason` is one sentence. Never a verdict about the kernel."""

    reason: str


@frozen(eq=False)
class Expectation:
    """What the outputs of one case should be, flat, by buffer name."""

    values: Mapping[str, Array]
    """float64 for float elements, integers for the rest."""
    untouched: Mapping[str, Array] = field(factory=dict)
    """Masks of the numbers that the reference does not write, for buffers where there are any."""
    spread: Mapping[str, Array] = field(factory=dict)
    """Absolute change per unit relative change of the inputs, for float buffers where it was measured."""
    accumulated: Mapping[str, float] = field(factory=dict)
    """How many terms a number is made from, where it was measured."""
    rounded: bool = False
    """The values come from a kernel in the precision of its buffers, and have rounding errors of their own."""
    still: Mapping[str, Array] = field(factory=dict)
    """Masks of the numbers that held their value already before the run, for buffers with room around what is used:
    those that a kernel leaves alone are not compared, so that they do not count as the size of what it computes."""

    def terms(self, name: str, bound: Bound) -> float:
        """How many terms a number of a buffer is made from, or an upper bound of it."""
        return self.accumulated.get(name, longest_sum(bound))


class Yardstick(Protocol):
    """A reference that is ready to be asked."""

    words: str
    """For a person: `saxpy_cpu`, `torch: a * x + y`, `accepted kernel`."""
    precise: bool
    """Computed in double precision."""

    def expect(self, bounds: Sequence[Bound]) -> "list[Expectation | BadReference]":
        """The expectation of each case, in order. A case that the reference cannot do is a value in its place."""

    def plain(self, bound: Bound) -> Mapping[str, Array] | None:
        """The outputs of a case in single precision throughout, None where that is no other answer."""

    def at_edges(self, bound: Bound, terms: float) -> Sequence[Mapping[str, Array]]:
        """Its outputs for inputs moved by what rounding `terms` of them may do, and with fused multiply-adds.

        Where they differ from the expected values by a jump, rounding decides which way the reference goes.
        """

    def exactly(self, bound: Bound) -> Expectation | None:
        """The expectation of a case in double precision, None where `expect` has given that or it cannot be had."""

    def scale_free(self, bound: Bound, name: str) -> bool:
        """Inputs of another size only give outputs of another size, by one factor for all numbers of the buffer.

        What is done to tiny inputs is then what is done to any. Beside a constant they would rightly be lost.
        """

    def undefined(self, bound: Bound) -> str | None:
        """Why the outputs of a case say nothing although the reference gives some; None when they do."""

    def defines_nan(self) -> bool:
        """It chooses nothing by comparing numbers, so a NaN in an input has one right answer."""

    def defines_inf(self) -> bool:
        """It has no difference or quotient that another way to write it would not have, so an Inf has one too."""


def open_reference(
    reference: Reference,
    *,
    text: str,
    accepted_text: str | None,
    kernel: Kernel,
    buffers: tuple[BufferSpec, ...],
    source: Source,
    backend: Backend,
    host: Backend | None,
    baseline: Source | None,
    deadline_s: float,
    seed: int,
) -> Yardstick | BadReference:
    """Make a reference ready.

    Args:
        reference: what the spec names.
        text: the document that is judged.
        accepted_text: the document before the change: a reference function is taken from it, because the judged one
            could bring its own.
        kernel: the kernel being judged, whose parameters' names a function and an expression use.
        buffers: the spec's buffers.
        source: the judged kernel's source, for include folders and flags.
        backend: where the accepted kernel runs.
        host: where functions run; None when this machine has no C++ compiler.
        baseline: the accepted kernel.
        deadline_s: longest run of one case.
        seed: of the sensitivity's steps.
    """
    match reference.via:
        case "torch":
            return TorchYardstick(reference.text, kernel, buffers, seed)
        case "function":
            return _open_function(reference, text, accepted_text, kernel, source, host, deadline_s, seed)
        case "kernel":
            if baseline is None:
                return BadReference("there is no accepted kernel to compare with")
            return open_kernel(baseline, kernel, backend, deadline_s, seed, host)
        case "python":
            return BadReference(f"the reference `py:{reference.text}` is not run: Python files are not executed")
        case _:
            return BadReference(f"a reference of kind `{reference.via}` is not known")


class TorchYardstick:
    """An expression over the inputs, evaluated in float64 by `torch_expression`."""

    precise = True

    def __init__(self, text: str, kernel: Kernel, buffers: tuple[BufferSpec, ...], seed: int) -> None:
        self.text = text
        self.words = f"torch: {text}"
        self.seed = seed
        self.extents = {buffer.name: buffer.extents for buffer in buffers}

    def expect(self, bounds: Sequence[Bound]) -> "list[Expectation | BadReference]":
        answers = [self._one(bound) for bound in bounds]
        counted: list[Mapping[str, float]] = []
        for bound, answer in zip(bounds, answers, strict=True):
            found: Mapping[str, float] = {}
            if isinstance(answer, Expectation) and _may_be_poked(bound):
                poked = pokes(bound, self.seed)
                try:
                    found = fan_in(bound, answer.values, [(n, self._outputs(bound, moved)) for n, moved in poked])
                except ExpressionFailed:
                    pass  # a value that it cannot take, e.g. an index: what is known of the sizes has to do
            counted.append(found)
        return _counted(bounds, answers, counted)

    def scale_free(self, bound: Bound, name: str) -> bool:
        try:
            inputs, factor = enlarged(bound)
            values, others = self._outputs(bound, decoded(bound))[name], self._outputs(bound, inputs)[name]
        except ExpressionFailed:
            return False
        return by_one_factor(values, others, factor)

    def at_edges(self, bound: Bound, terms: float) -> Sequence[Mapping[str, Array]]:
        try:
            return [self._outputs(bound, moved) for moved in edge_inputs(bound, terms, self.seed)]
        except ExpressionFailed:
            return []

    def exactly(self, bound: Bound) -> Expectation | None:
        return None

    def undefined(self, bound: Bound) -> str | None:
        return None

    def plain(self, bound: Bound) -> Mapping[str, Array] | None:
        floats = [buffer.element for buffer in bound.buffers.values() if buffer.element.kind is Kind.FLOAT]
        if any(element.storage == np.float64 for element in floats):
            return None
        single = {n: v.astype(np.float32) if v.dtype.kind == "f" else v for n, v in decoded(bound).items()}
        try:
            return self._outputs(bound, single)
        except ExpressionFailed:
            return None

    def defines_nan(self) -> bool:
        return _TORCH_CHOOSES.search(self.text) is None

    def defines_inf(self) -> bool:
        return self.defines_nan() and re.search(r"[-/]", self.text) is None

    def _one(self, bound: Bound) -> "Expectation | BadReference":
        try:
            values = self._outputs(bound, decoded(bound))
            shifted = [
                self._outputs(bound, shift(decoded(bound), _FINE_STEP, [self.seed, number]))
                for number in range(0 if bound.large else _SHIFTS)
            ]
        except ExpressionFailed as error:
            return BadReference(f"the reference {self.words} gives nothing: {error}")
        return Expectation(values, {}, _spread(bound, values, shifted, _FINE_STEP))

    def _outputs(self, bound: Bound, inputs: Mapping[str, Array]) -> dict[str, Array]:
        problem: ExpressionFailed | None = None
        for split in (True, False):
            try:
                results = evaluate_torch(self.text, self._names(bound, inputs, split))
                return self._assign(bound, results)
            except ExpressionFailed as error:
                # `A[M*K]` is a matrix to most expressions and a vector to the rest; the first complaint is the better one.
                problem = problem or error
        assert problem is not None
        raise problem

    def _names(self, bound: Bound, inputs: Mapping[str, Array], split: bool) -> dict[str, Any]:
        names: dict[str, Any] = dict(bound.names)
        for name, scalar in bound.scalars.items():
            names[name] = bool(scalar.value) if scalar.element.kind is Kind.BOOL else scalar.value
        for name, values in inputs.items():
            buffer = bound.buffers[name]
            shaped = values.reshape(self._shape(bound, buffer, split))
            names[name] = shaped != 0 if buffer.element.kind is Kind.BOOL else shaped
        return names

    def _shape(self, bound: Bound, buffer: BoundBuffer, split: bool) -> tuple[int, ...]:
        shape = buffer.shape
        extents = self.extents.get(buffer.name, ())
        if split and len(extents) == 1 and (factors := _factors(extents[0])) is not None and len(factors) > 1:
            sizes = [bound.names.get(factor, int(factor) if factor.isdigit() else -1) for factor in factors]
            if int(np.prod(sizes)) == buffer.count and min(sizes) > 0:
                shape = tuple(sizes)
        return (*shape[:-1], shape[-1] * buffer.element.lanes)

    def _assign(self, bound: Bound, results: tuple[Array, ...]) -> dict[str, Array]:
        outputs = bound.checked
        if len(results) != len(outputs):
            raise ExpressionFailed(f"it has {len(results)} results for {len(outputs)} outputs")
        values: dict[str, Array] = {}
        for buffer, result in zip(outputs, results, strict=True):
            numbers = buffer.count * buffer.element.lanes
            if result.size != numbers:
                raise ExpressionFailed(f"it has {result.size} values, `{buffer.name}` has {numbers}")
            flat = np.ascontiguousarray(result).reshape(-1)
            if buffer.element.kind is Kind.FLOAT:
                values[buffer.name] = flat.astype(np.float64)
            elif flat.dtype.kind == "f":
                if not np.array_equal(flat, np.rint(flat)):
                    raise ExpressionFailed(
                        f"its values are no integers, but `{buffer.name}` holds {buffer.element.spelling}"
                    )
                values[buffer.name] = flat.astype(np.int64)
            else:
                values[buffer.name] = flat
        return values


def _factors(extent: str) -> list[str] | None:
    """`n * (d)` -> n, d; None for anything that is not a plain product."""
    parts = [part.strip().strip("()").strip() for part in extent.split("*")]
    return parts if all(re.fullmatch(r"\w+", part) for part in parts) else None


class FunctionYardstick:
    """A CPU function of the file, compiled and run confined by the host back end, in double precision where it can be."""

    def __init__(
        self, name: str, function: Function, matched: Mapping[str, str], prepared: Prepared, precise: bool, body: str,
        deadline_s: float, seed: int, again: "Callable[[bool, str], FunctionYardstick | BadReference]",
        numbers: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.words = name
        self.precise = precise
        self.function = function
        self.matched = matched
        self.prepared = prepared
        self.body = body
        self.deadline_s = deadline_s
        self.seed = seed
        self.again = again
        """The same function built in double precision or not, and with another arithmetic (`launch.Source.arithmetic`)."""
        self.numbers = numbers
        """What its numbers are, by its parameters, where they are none of the kernel's."""

    def plain(self, bound: Bound) -> Mapping[str, Array] | None:
        return self._single(bound, "") if self.precise else None

    def scale_free(self, bound: Bound, name: str) -> bool:
        if not self.precise:
            return False
        inputs, factor = enlarged(bound)
        launches = [self._launch(bound, numbers, 0) for numbers in (decoded(bound), inputs)]
        (answer,) = run_groups(self.prepared, [launches])
        if isinstance(answer, (Faulted, NotSupported)):
            return False
        values, others = (self._decoded(bound, ran)[name] for ran in answer)
        return by_one_factor(values, others, factor)

    def at_edges(self, bound: Bound, terms: float) -> Sequence[Mapping[str, Array]]:
        launches = [self._launch(bound, moved, 0) for moved in edge_inputs(bound, terms, self.seed)]
        moved = _each(self.prepared, bound, launches, self._decoded)
        fused = self._single(bound, "fused")
        return moved if fused is None else [fused, *moved]

    def exactly(self, bound: Bound) -> Expectation | None:
        return None

    def undefined(self, bound: Bound) -> str | None:
        integers = any(buffer.element.kind is not Kind.FLOAT for buffer in bound.buffers.values())
        if not integers and _CONVERTS.search(self.body) is None:
            return None
        strict = self.again(self.precise, "defined")
        if isinstance(strict, BadReference):
            return None
        (answer,) = run_groups(strict.prepared, [[strict._launch(bound, decoded(bound), 0)]])
        if not isinstance(answer, Faulted) or answer.hazard != "fault":
            return None
        line = re.search(r"line \d+", answer.where)
        return (
            f"the reference {self.words} overflows an integer, or converts a float out of range,"
            f"{f' at {line[0]}' if line else ''} for {bound.label}, which C leaves undefined: "
            "give the inputs a range in a //dice: line"
        )

    def _single(self, bound: Bound, arithmetic: str) -> Mapping[str, Array] | None:
        other = self.again(False, arithmetic)
        if isinstance(other, BadReference):
            return None
        (answer,) = run_groups(other.prepared, [[other._launch(bound, decoded(bound), 0)]])
        return None if isinstance(answer, (Faulted, NotSupported)) else other._decoded(bound, answer[0])

    def _decoded(self, bound: Bound, ran: Ran) -> dict[str, Array]:
        outputs = {buffer.name: self.matched[buffer.name] for buffer in bound.checked}
        return {name: self._element(own).decode(ran.outputs[own]) for name, own in outputs.items()}

    def defines_nan(self) -> bool:
        # Loops compare indices with bounds; a comparison of data shows as `?` or `if`, or hides in another function.
        called = set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", self.body)) - {"for", "while", "sizeof", "float", "double"}
        return re.search(r"\?|\bif\b|\(\s*(?:int|long|unsigned)[\w\s]*\)", self.body) is None and all(
            re.fullmatch(_SMOOTH, name) for name in called
        )

    def defines_inf(self) -> bool:
        return self.defines_nan() and re.search(r"[-/(]\s*\w*(?:exp|log|pow|tan|erf)|/|-(?!-)", self.body) is None

    def expect(self, bounds: Sequence[Bound]) -> "list[Expectation | BadReference]":
        step = _FINE_STEP if self.precise else _COARSE_STEP
        unsaid = {place: reason for place, bound in enumerate(bounds) if (reason := self._unsaid(bound)) is not None}
        if unsaid:
            asked = iter(self.expect([bound for place, bound in enumerate(bounds) if place not in unsaid]))
            return [BadReference(unsaid[place]) if place in unsaid else next(asked) for place in range(len(bounds))]
        groups = []
        for bound in bounds:
            inputs = decoded(bound)
            group = [self._launch(bound, inputs, 0)]
            if not bound.large:
                # From the other side: a function that reads before a buffer is not made for this size.
                group.append(evolve(self._launch(bound, inputs, 1), guard=Guard.LEFT))
            if _has_floats(bound) and not bound.large:
                group += [self._launch(bound, shift(inputs, step, [self.seed, n]), 0) for n in range(_SHIFTS)]
            groups.append(group)
        answers: list[Expectation | BadReference] = []
        for bound, results in zip(bounds, run_groups(self.prepared, groups), strict=True):
            if isinstance(results, (Faulted, NotSupported)):
                answers.append(
                    BadReference(f"the reference {self.words} itself fails for {bound.label}: {_why(results)}")
                )
            else:
                answers.append(self._expectation(bound, results, step))
        return _counted(bounds, answers, self._fans(bounds, answers))

    def _fans(
        self, bounds: Sequence[Bound], answers: "Sequence[Expectation | BadReference]"
    ) -> list[Mapping[str, float]]:
        poked = [
            pokes(b, self.seed) if _may_be_poked(b) and _usable(a) else [] for b, a in zip(bounds, answers, strict=True)
        ]
        launches = [[self._launch(b, moved, 0) for _, moved in p] for b, p in zip(bounds, poked, strict=True)]
        return _measured(self.prepared, bounds, answers, poked, launches, self._decoded)

    def _expectation(self, bound: Bound, results: Sequence[Ran], step: float) -> Expectation:
        values: dict[str, Array] = {}
        untouched: dict[str, Array] = {}
        shifted: list[dict[str, Array]] = [{} for _ in results[2:]]
        for buffer in bound.checked:
            own = self.matched[buffer.name]
            element = self._element(own)
            first, second = results[0].outputs[own], None if bound.large else results[1].outputs[own]
            values[buffer.name] = element.decode(first)
            if buffer.data is None:
                left = poison_left(first, second)
                if left.any():
                    untouched[buffer.name] = left
            for target, result in zip(shifted, results[2:], strict=True):
                target[buffer.name] = element.decode(result.outputs[own])
        return Expectation(values, untouched, _spread(bound, values, shifted, step))

    def _element(self, name: str) -> Element:
        parameter = next(p for p in self.function.parameters if p.name == name)
        return function_element(parameter, self.precise)

    def _launch(self, bound: Bound, inputs: Mapping[str, Array], poison: int) -> Launch:
        back = {own: name for name, own in self.matched.items()}
        arguments: list[Argument] = []
        for parameter in self.function.parameters:
            element = function_element(parameter, self.precise)
            if parameter.name in self.numbers:
                value = _number(self.numbers[parameter.name], bound)
                arguments.append(ScalarArgument(parameter.name, scalar_bytes(element, value)))
                continue
            name = back[parameter.name]
            if parameter.pointer:
                buffer = bound.buffers[name]
                if name in inputs:
                    initial = element.encode(inputs[name])
                else:
                    raw = np.full(
                        buffer.count * buffer.element.lanes * element.storage.itemsize, POISON_BYTES[poison], np.uint8
                    )
                    initial = raw.view(element.storage)
                arguments.append(BufferArgument(parameter.name, initial, element.itemsize, writable=True))
            else:
                value = bound.scalars[name].value
                arguments.append(ScalarArgument(parameter.name, scalar_bytes(element, value)))
        return Launch((1, 1, 1), (1, 1, 1), 0, tuple(arguments), deadline_s=self.deadline_s)

    def _unsaid(self, bound: Bound) -> str | None:
        """Why the function's numbers are not known for a case; None where they are."""
        for parameter, text in self.numbers.items():
            try:
                _number(text, bound)
            except ExpressionError:
                return f"what `{parameter}` of the reference {self.words} is for {bound.label} is not known"
        return None


def _number(text: str, bound: Bound) -> float | int:
    """A number of a function's call: a parameter of the kernel, an expression of the spec's names, or a float.

    Raises:
        ExpressionError: the case does not say it.

    """
    if text in bound.scalars:
        return bound.scalars[text].value
    try:
        return evaluate(text, bound.names)
    except ExpressionError:
        try:
            return float(text)
        except ValueError:
            raise ExpressionError(text) from None


def function_element(parameter: Parameter, precise: bool) -> Element:
    """The element a function's parameter has once it is compiled; `float` is `double` in a precise build."""
    element = element_of(parameter.element)
    assert element is not None, "checked when the function was matched"
    if precise and element.lanes == 1 and element.storage == np.float32 and not element.bfloat16:
        return FLOAT64
    return element


def _open_function(
    reference: Reference, text: str, accepted_text: str | None, kernel: Kernel, source: Source, host: Backend | None,
    deadline_s: float, seed: int,
) -> "FunctionYardstick | BadReference":  # fmt: skip
    name = reference.text
    if host is None:
        return BadReference(f"the reference {name} needs a C++ compiler and none was found")
    if reference.path:
        try:
            with open(reference.path, encoding="utf-8", errors="replace") as file:
                home = file.read()
        except OSError:
            return BadReference(f"the file of the reference {name} cannot be read: {reference.path}")
        functions, source = _named(home, name), evolve(source, path=reference.path)
    else:
        home, functions = _functions(name, text, accepted_text, kernel)
    if not functions:
        return BadReference(f"there is no function `{name}` in this file")
    function = functions[0]
    matched: Mapping[str, str] | BadReference = BadReference("")
    numbers: dict[str, str] = {}
    for function in functions:
        matched = _match(function, kernel, reference.arguments)
        if not isinstance(matched, BadReference):
            break
    if isinstance(matched, BadReference):
        return matched
    if reference.arguments:
        numbers = {p.name: reference.arguments[p.name] for p in function.parameters if not p.pointer}
    sliced = device_slice(home, keep_functions=(name,)).text
    # The same record for all candidates of a fill, so that they share one build of the function.
    nobody = evolve(
        kernel, parameters=function.parameters, start=0, end=0, body_start=0, body_end=0, line=0, launch_bounds=None
    )
    body = without_comments(home[function.body_start : function.body_end])
    agreed = matched

    def open_at(fp64: bool, arithmetic: str = "") -> "FunctionYardstick | BadReference":
        wanted = evolve(
            source, device_text=sliced, kernel=nobody, function=name, fp64=fp64, arithmetic=arithmetic, compiled=None
        )
        prepared = host.prepare(wanted)
        if isinstance(prepared, CompileFailed):
            error = prepared.errors[0] if prepared.errors else prepared.messages[0]
            return BadReference(f"the reference {name} cannot be compiled: line {error.line + 1}: {error.text}")
        if isinstance(prepared, NotSupported):
            return BadReference(f"the reference {name} cannot be compiled: {prepared.reason}")
        return FunctionYardstick(name, function, agreed, prepared, fp64, body, deadline_s, seed, open_at, numbers)

    if not any((element_of(p.element) or FLOAT32).lanes > 1 for p in function.parameters):
        precise = open_at(True)
        if not isinstance(precise, BadReference):
            return precise
    return open_at(False)


def _functions(name: str, text: str, accepted_text: str | None, kernel: Kernel) -> tuple[str, list[Function]]:
    """The document to take a reference function from, and the functions of that name in it.

    The accepted kernel is blanked where the texts differ in nothing else: it may be half a kernel, whose open brace
    hides every function below it.
    """
    before, after = text[: kernel.start], text[kernel.end :]
    home = text if accepted_text is None else accepted_text
    if len(before) + len(after) <= len(home) and home.startswith(before) and home.endswith(after):
        home = _blanked(home, len(before), len(home) - len(after))
    return home, _named(home, name)


def _named(text: str, name: str) -> list[Function]:
    return [function for function in parse(text).functions if name in (function.name, function.qualified_name)]


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + re.sub(r"[^\r\n]", " ", text[start:end]) + text[end:]


def _match(function: Function, kernel: Kernel, arguments: Mapping[str, str]) -> "dict[str, str] | BadReference":
    """Kernel parameter -> function parameter: as the program calls it, by name, or by position when both lists are alike."""
    own = {parameter.name: parameter for parameter in kernel.parameters}
    for parameter in function.parameters:
        element = element_of(parameter.element)
        if element is None or parameter.indirections > 1 or (element.lanes > 1 and not parameter.pointer):
            return BadReference(
                f"parameter `{parameter.name}` of {function.name} has the type `{parameter.spelling}`, which is not known here"
            )
    names = [parameter.name for parameter in function.parameters]
    if arguments and arguments.keys() == set(names):
        matched = {arguments[p.name]: p.name for p in function.parameters if p.pointer}
    elif arguments:
        return BadReference(f"{function.name} has other parameters than the program gives it")
    elif all(
        name in own and own[name].pointer == p.pointer for name, p in zip(names, function.parameters, strict=True)
    ):
        matched = {name: name for name in names}
    elif len(names) == len(own) and all(
        a.pointer == b.pointer for a, b in zip(kernel.parameters, function.parameters, strict=True)
    ):
        matched = {a.name: b.name for a, b in zip(kernel.parameters, function.parameters, strict=True)}
    elif (placed := matched_parameters(function, kernel, {})) is not None:
        matched = {mine: name for name, mine in placed.items()}
    else:
        missing = next((name for name in names if name not in own), names[0] if names else "")
        return BadReference(
            f"parameter `{missing}` of {function.name} is no parameter of {kernel.name}: give both the same names"
        )
    missing_outputs = [p.name for p in kernel.parameters if p.pointer and not p.const and p.name not in matched]
    if missing_outputs:
        return BadReference(f"{function.name} has no parameter `{missing_outputs[0]}`, which {kernel.name} may write")
    return matched


class KernelYardstick:
    """The accepted kernel, run on the same back end as the judged one."""

    words = "accepted kernel"
    precise = False

    def __init__(
        self, prepared: Prepared, kernel: Kernel, deadline_s: float, seed: int, widened: Callable[[], Prepared | None]
    ) -> None:
        self.prepared = prepared
        self.kernel = kernel
        self.deadline_s = deadline_s
        self.seed = seed
        self.widened = widened
        """The kernel on the host in double precision, where it can be built."""

    def plain(self, bound: Bound) -> Mapping[str, Array] | None:
        return None

    def scale_free(self, bound: Bound, name: str) -> bool:
        return False

    def at_edges(self, bound: Bound, terms: float) -> Sequence[Mapping[str, Array]]:
        moved = [with_inputs(bound, inputs) for inputs in edge_inputs(bound, terms, self.seed)]
        launches = [other.launch(deadline_s=self.deadline_s) for other in moved]
        return _each(self.prepared, bound, launches, self._decoded)

    def exactly(self, bound: Bound) -> Expectation | None:
        threads = int(np.prod(bound.grid) * np.prod(bound.block))
        if bound.values or bound.variables:
            return None  # a struct of doubles would have another layout
        if bound.large or threads > _EMULATED_THREADS or bound.bytes > _EMULATED_BYTES:
            return None
        if not any(widened_element(buffer.element) is FLOAT64 for buffer in bound.checked):
            return None
        if (prepared := self.widened()) is None:
            return None
        inputs = decoded(bound)
        moved = [shift(inputs, _FINE_STEP, [self.seed, n]) for n in range(_SHIFTS)]
        launches = [self._wide_launch(bound, numbers) for numbers in (inputs, *moved)]
        (answer,) = run_groups(prepared, [launches])
        if isinstance(answer, (Faulted, NotSupported)):
            return None
        first, *shifted = [
            {b.name: widened_element(b.element).decode(ran.outputs[b.name]) for b in bound.checked} for ran in answer
        ]
        return Expectation(first, {}, _spread(bound, first, shifted, _FINE_STEP))

    def undefined(self, bound: Bound) -> str | None:
        return None

    def _wide_launch(self, bound: Bound, inputs: Mapping[str, Array]) -> Launch:
        arguments: list[Argument] = []
        for name in bound.order:
            if (buffer := bound.buffers.get(name)) is not None:
                element = widened_element(buffer.element)
                if name in inputs:
                    initial = element.encode(inputs[name])
                else:
                    count = buffer.count * element.lanes * element.storage.itemsize
                    initial = np.full(count, POISON_BYTES[0], np.uint8).view(element.storage)
                arguments.append(BufferArgument(name, initial, element.itemsize, buffer.spec.role is not Role.IN))
            else:
                scalar = bound.scalars[name]
                element = widened_element(scalar.element)
                arguments.append(ScalarArgument(name, scalar_bytes(element, scalar.value)))
        return Launch(bound.grid, bound.block, bound.smem_bytes, tuple(arguments), deadline_s=self.deadline_s)

    def _decoded(self, bound: Bound, ran: Ran) -> dict[str, Array]:
        return {buffer.name: buffer.element.decode(ran.outputs[buffer.name]) for buffer in bound.checked}

    def defines_nan(self) -> bool:
        return False

    def defines_inf(self) -> bool:
        return False

    def expect(self, bounds: Sequence[Bound]) -> "list[Expectation | BadReference]":
        groups = []
        for bound in bounds:
            poisons = (0,) if bound.large else (0, 1)
            group = [bound.launch(poison=poison, deadline_s=self.deadline_s) for poison in poisons]
            if _steps_show(bound) and not bound.large:
                for n in range(_SHIFTS):
                    moved = with_inputs(bound, shift(decoded(bound), _COARSE_STEP, [self.seed, n]))
                    group.append(moved.launch(deadline_s=self.deadline_s))
            groups.append(group)
        answers: list[Expectation | BadReference] = []
        for bound, results in zip(bounds, run_groups(self.prepared, groups), strict=True):
            if isinstance(results, (Faulted, NotSupported)):
                answers.append(BadReference(f"the accepted kernel itself fails for {bound.label}: {_why(results)}"))
            else:
                answers.append(self._expectation(bound, results))
        most = _POKED_ELEMENTS_EMULATED
        small = [_may_be_poked(b, most) and _usable(a) for b, a in zip(bounds, answers, strict=True)]
        poked = [pokes(b, self.seed) if wanted else [] for b, wanted in zip(bounds, small, strict=True)]
        launches = [
            [with_inputs(b, moved).launch(deadline_s=self.deadline_s) for _, moved in p]
            for b, p in zip(bounds, poked, strict=True)
        ]
        counted = _measured(self.prepared, bounds, answers, poked, launches, self._decoded)
        return _counted(bounds, answers, counted)

    def _expectation(self, bound: Bound, results: Sequence[Ran]) -> "Expectation | BadReference":
        values: dict[str, Array] = {}
        untouched: dict[str, Array] = {}
        for buffer in bound.checked:
            first = results[0].outputs[buffer.name]
            second = None if bound.large else results[1].outputs[buffer.name]
            values[buffer.name] = buffer.element.decode(first)
            if buffer.data is None:
                left = poison_left(first, second)
                if left.all():
                    return BadReference(f"the accepted kernel writes nothing to `{buffer.name}`, so it is no reference")
                if left.any():
                    untouched[buffer.name] = left
        shifted = [
            {buffer.name: buffer.element.decode(result.outputs[buffer.name]) for buffer in bound.checked}
            for result in results[2:]
        ]
        spread = _spread(bound, values, shifted, _COARSE_STEP)
        return Expectation(values, untouched, spread, rounded=True)


def widened_element(element: Element) -> Element:
    """The element that a buffer has in a build in double precision; `float` becomes `double`."""
    wide = element.lanes == 1 and element.storage == np.float32 and not element.bfloat16
    return FLOAT64 if wide and element.kind is Kind.FLOAT else element


def open_kernel(
    baseline: Source, kernel: Kernel, backend: Backend, deadline_s: float, seed: int, host: Backend | None = None
) -> "KernelYardstick | BadReference":
    """The accepted kernel as a yardstick; with a `host` it can be run in double precision as well."""
    mine, theirs = ([(p.name, p.element, p.pointer) for p in k.parameters] for k in (kernel, baseline.kernel))
    if mine != theirs:
        return BadReference("the accepted kernel has other parameters than this one")
    if [p.fields for p in kernel.parameters] != [p.fields for p in baseline.kernel.parameters]:
        return BadReference("the structs that the accepted kernel takes are laid out in another way")
    prepared = backend.prepare(baseline)
    if isinstance(prepared, CompileFailed):
        return BadReference("the accepted kernel does not compile")
    if isinstance(prepared, NotSupported):
        return BadReference(f"the accepted kernel cannot be run: {prepared.reason}")

    def widened() -> Prepared | None:
        built = None if host is None else host.prepare(evolve(baseline, fp64=True))
        return None if isinstance(built, (CompileFailed, NotSupported)) else built

    return KernelYardstick(prepared, baseline.kernel, deadline_s, seed, widened)


def run_groups(
    prepared: Prepared, groups: Sequence[Sequence[Launch]]
) -> "list[Sequence[Ran] | Faulted | NotSupported]":
    """Run the launches of all groups in as few calls as possible; a group whose launch fails is that failure."""
    answers: list[Sequence[Ran] | Faulted | NotSupported] = []
    failures = 0
    while len(answers) < len(groups):
        waiting = groups[len(answers) :]
        results = prepared.run([launch for group in waiting for launch in group])
        at = 0
        for group in waiting:
            part = results[at : at + len(group)]
            at += len(group)
            bad = next((result for result in part if not isinstance(result, Ran)), None)
            if bad is None and len(part) == len(group):
                answers.append([result for result in part if isinstance(result, Ran)])
                continue
            failure = bad if isinstance(bad, (Faulted, NotSupported)) else Faulted("fault", "the run ended early")
            answers.append(failure)
            failures += 1
            break
        if failures >= _MAX_FAILED_CASES:
            last = answers[-1]
            answers += [last] * (len(groups) - len(answers))
    return answers


def decoded(bound: Bound) -> dict[str, Array]:
    """The initial numbers of every buffer that has any: float64 for floats, integers for the rest."""
    return {
        name: buffer.element.decode(buffer.data) for name, buffer in bound.buffers.items() if buffer.data is not None
    }


def shift(inputs: Mapping[str, Array], step: float, seed: Sequence[int]) -> dict[str, Array]:
    """Inputs whose floats are moved by a random relative step of `step / 2` to `step`, up or down."""
    rng = np.random.default_rng([abs(number) for number in seed])
    moved: dict[str, Array] = {}
    for name, values in inputs.items():
        if values.dtype.kind != "f":
            moved[name] = values
            continue
        steps = rng.random(values.size) - 0.5
        steps += np.copysign(0.5, steps)
        moved[name] = values * (1.0 + step * steps)
    return moved


def enlarged(bound: Bound) -> tuple[dict[str, Array], float]:
    """The inputs of a case with all floats multiplied by one power of two, so that the largest is about 1, and that power."""
    inputs = decoded(bound)
    floats = [values for values in inputs.values() if values.dtype.kind == "f" and values.size]
    largest = max((float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) for values in floats), default=0.0)
    factor = 1.0 if largest == 0.0 else float(2.0 ** -np.floor(np.log2(largest)))
    return {name: values * factor if values.dtype.kind == "f" else values for name, values in inputs.items()}, factor


def by_one_factor(values: Array, others: Array, factor: float) -> bool:
    """`others` is `values` times a power of `factor`, a quarter of a whole number."""
    seen = np.isfinite(values) & np.isfinite(others) & (values != 0.0) & (others != 0.0)
    if factor == 1.0 or not seen.any():
        return True
    power = float(np.median(np.log2(np.abs(others[seen] / values[seen])))) / float(np.log2(factor))
    scaled = values * factor ** (round(4 * power) / 4)
    with np.errstate(invalid="ignore"):
        same = (np.abs(scaled - others) <= 1e-6 * np.abs(others)) | ~(np.isfinite(scaled) | np.isfinite(others))
    return bool(same.all())


def edge_step(terms: float) -> float:
    """Relative step of the inputs that stands for the rounding of a float result made from `terms` terms."""
    return _EDGE_STEP * float(np.sqrt(max(1.0, terms)))


def edge_inputs(bound: Bound, terms: float, seed: int) -> list[dict[str, Array]]:
    """The inputs of a case, moved by a few roundings to both sides, several times."""
    inputs, step = decoded(bound), edge_step(terms)
    pairs = 1 if bound.large else _EDGE_PAIRS
    return [shift(inputs, way * step, [seed, 7, n]) for n in range(pairs) for way in (1.0, -1.0)]


def input_size(bound: Bound) -> float:
    """The root mean square of all float inputs, or its square where that is more: what products of them are like."""
    floats = [values[np.isfinite(values)] for values in decoded(bound).values() if values.dtype.kind == "f"]
    count = sum(values.size for values in floats)
    with np.errstate(over="ignore"):
        square = sum(float(np.sum(np.square(values))) for values in floats) / max(1, count)
    return max(float(np.sqrt(square)), square) if np.isfinite(square) else 0.0


def whole(bound: Bound) -> bool:
    """All float inputs are whole numbers so small that a sum of them is exact."""
    floats = [v for v in decoded(bound).values() if v.dtype.kind == "f"]
    return all(bool((np.isfinite(v) & (v == np.rint(v)) & (np.abs(v) < _WHOLE)).all()) for v in floats)


def longest_sum(bound: Bound) -> float:
    """An upper bound for how many terms one output is summed from: the longest size that the inputs have beside it."""
    inputs = sorted((b.count * b.element.lanes for b in bound.inputs), reverse=True)
    outputs = [b.count * b.element.lanes for b in bound.checked]
    if not inputs or not outputs:
        return 1.0
    ratio = inputs[0] / min(outputs)
    if len(inputs) > 1:
        # Two matrices MK and KN that make one MN have sqrt(MK * KN / MN) = K.
        ratio = max(ratio, (inputs[0] * inputs[1] / max(outputs)) ** 0.5)
    longest = max([1, *(value for value in bound.dims.values() if value <= inputs[0])])
    return float(max(ratio, longest))


def pokes(bound: Bound, seed: int) -> list[tuple[str, dict[str, Array]]]:
    """Inputs in which one float is another: the first and any one of each of the largest buffers, with the buffer's name."""
    inputs = decoded(bound)
    floats = [name for name, values in inputs.items() if values.dtype.kind == "f" and values.size]
    rng = np.random.default_rng([abs(seed), 11])
    changed: list[tuple[str, dict[str, Array]]] = []
    for name in sorted(floats, key=lambda name: -inputs[name].size)[:_POKED_BUFFERS]:
        values = inputs[name]
        for index in dict.fromkeys((0, int(rng.integers(values.size)))):
            other = values.copy()
            # Far enough to show in a long sum, and towards zero, so that it stays in whatever range it was drawn from.
            other[index] = (
                0.4 * values[index] if abs(values[index]) > 0.1 * float(np.abs(values).max()) else values.max()
            )
            if other[index] != values[index]:
                changed.append((name, {**inputs, name: other}))
    return changed


def fan_in(
    bound: Bound, values: Mapping[str, Array], poked: Sequence[tuple[str, Mapping[str, Array]]]
) -> dict[str, float]:
    """How many terms each output's numbers are made from, from how many of them follow one input (see `pokes`).

    Outputs that followed none are left out: a maximum or a mask may have hidden it.
    """
    found: dict[str, float] = {}
    for name, outputs in poked:
        source = bound.buffers[name]
        for buffer in bound.checked:
            a, b = values[buffer.name], outputs[buffer.name]
            same = (a == b) | ((a != a) & (b != b))
            followed = int(np.count_nonzero(~same))
            if followed:
                terms = followed * source.count * source.element.lanes / a.size
                found[buffer.name] = max(found.get(buffer.name, 1.0), terms)
    return found


def _each(
    prepared: Prepared, bound: Bound, launches: Sequence[Launch], decode: Callable[[Bound, Ran], dict[str, Array]]
) -> list[dict[str, Array]]:
    """The outputs of some launches of one case, none when one fails; those of large cases run one at a time."""
    groups = [[launch] for launch in launches] if bound.large else [launches]
    found: list[dict[str, Array]] = []
    for group in groups:
        (answer,) = run_groups(prepared, [group])
        if isinstance(answer, (Faulted, NotSupported)):
            return []
        found += [decode(bound, ran) for ran in answer]
    return found


def _measured(
    prepared: Prepared, bounds: Sequence[Bound], answers: "Sequence[Expectation | BadReference]",
    poked: Sequence[Sequence[tuple[str, Any]]], launches: Sequence[Sequence[Launch]],
    decode: Callable[[Bound, Ran], Mapping[str, Array]],
) -> list[Mapping[str, float]]:  # fmt: skip
    """`fan_in` of each case; nothing for one whose launches fail, which a value that is also an index may make them."""
    wanted = [n for n, group in enumerate(launches) if group]
    counted: list[Mapping[str, float]] = [{} for _ in bounds]
    for n, results in zip(wanted, run_groups(prepared, [launches[n] for n in wanted]), strict=True):
        answer = answers[n]
        if isinstance(answer, Expectation) and not isinstance(results, (Faulted, NotSupported)):
            outputs = [(name, decode(bounds[n], ran)) for (name, _), ran in zip(poked[n], results, strict=True)]
            counted[n] = fan_in(bounds[n], answer.values, outputs)
    return counted


def _counted(
    bounds: Sequence[Bound], answers: "Sequence[Expectation | BadReference]", counted: Sequence[Mapping[str, float]]
) -> "list[Expectation | BadReference]":
    """The answers with how many terms they are made from: counted, or for larger sizes in proportion to `longest_sum`."""
    known: list[Expectation | BadReference] = []
    for bound, answer, found in zip(bounds, answers, counted, strict=True):
        if isinstance(answer, Expectation):
            estimated: dict[str, float] = {}
            telling = [n for n, other in enumerate(bounds) if counted[n] and _tells(other, bound)]
            for n in telling or range(len(bounds)):
                # Without a case that tells, the sizes of this one are an upper bound, and what a small one has a lower.
                scale = max(1.0, longest_sum(bound) / longest_sum(bounds[n])) if telling else 1.0
                for name, count in counted[n].items():
                    least = 1.0 if telling else longest_sum(bound)
                    terms = 1.0 if count <= 1.0 else count * scale
                    estimated[name] = max(estimated.get(name, least), terms)
            answer = evolve(answer, accumulated={**estimated, **found})
        known.append(answer)
    return known


def _tells(small: Bound, bound: Bound) -> bool:
    """No size of the small case is so small that a sum over it would be none."""
    return all(small.dims.get(name, 0) >= min(_TELLING_TERMS, size) for name, size in bound.dims.items())


def _usable(answer: "Expectation | BadReference") -> bool:
    return isinstance(answer, Expectation)


def _may_be_poked(bound: Bound, most: int = _POKED_ELEMENTS) -> bool:
    """Small enough to be run a few times more, and drawn so that no output is a special case."""
    elements = sum(buffer.count * buffer.element.lanes for buffer in bound.buffers.values())
    return bound.distribution is Distribution.DEFAULT and elements <= most


def with_inputs(bound: Bound, inputs: Mapping[str, Array]) -> Bound:
    """The same case with other numbers in its buffers, rounded to what they store."""
    buffers = {
        name: evolve(buffer, data=buffer.element.encode(inputs[name])) if name in inputs else buffer
        for name, buffer in bound.buffers.items()
    }
    return evolve(bound, buffers=buffers)


def poison_left(first: Array, second: Array | None) -> Array:
    """Mask of the numbers that still hold poison 0 in one run and poison 1 in the other: nobody wrote them.

    With one run only, for large buffers, poison 0 has to do: a NaN that no computation makes, or -1.
    """
    unsigned = np.dtype(f"u{first.dtype.itemsize}")
    patterns = [np.frombuffer(bytes([byte]) * unsigned.itemsize, unsigned)[0] for byte in POISON_BYTES]
    left = np.asarray(np.ascontiguousarray(first).view(unsigned) == patterns[0])
    if second is not None and left.any():
        left &= np.ascontiguousarray(second).view(unsigned) == patterns[1]
    return left


def _spread(
    bound: Bound, values: Mapping[str, Array], shifted: Sequence[Mapping[str, Array]], step: float
) -> dict[str, Array]:
    spread: dict[str, Array] = {}
    if not shifted:
        return spread
    for buffer in bound.checked:
        if buffer.element.kind is not Kind.FLOAT:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            changes = [np.abs(other[buffer.name] - values[buffer.name]) / step for other in shifted]
            spread[buffer.name] = np.sqrt(np.mean(np.square(changes), axis=0))
    return spread


def _has_floats(bound: Bound) -> bool:
    return any(buffer.element.kind is Kind.FLOAT for buffer in bound.checked)


def _steps_show(bound: Bound) -> bool:
    """All floats have enough digits for a coarse step to be one."""
    floats = [buffer.element for buffer in bound.buffers.values() if buffer.element.kind is Kind.FLOAT]
    return _has_floats(bound) and all(element.epsilon < _COARSE_STEP / 64 for element in floats)


def _why(result: Faulted | NotSupported) -> str:
    return result.reason if isinstance(result, NotSupported) else f"{result.hazard.replace('_', ' ')}, {result.where}"
