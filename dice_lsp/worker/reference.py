"""What the outputs of a case should be: from a CPU function of the file, a PyTorch expression, or the accepted kernel.

Expected values are computed before they are compared and stay in this process's memory, where no kernel can reach
them. Beside each value a yardstick measures its sensitivity: the reference is run again with inputs moved by a small
random relative step, and the change per unit step says how much rounding may matter (see `worker.tolerance`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import evolve, field, frozen

from dice_lsp.records import BufferSpec, CompileFailed, Kernel, Parameter, Reference
from dice_lsp.source.kernels import Function, parse
from dice_lsp.source.slice import device_slice
from dice_lsp.source.tokens import without_comments
from dice_lsp.worker.arguments import POISON_BYTES, Bound, BoundBuffer, scalar_bytes
from dice_lsp.worker.elements import FLOAT32, FLOAT64, Array, Element, Kind, element_of
from dice_lsp.worker.launch import (
    Argument,
    Backend,
    BufferArgument,
    Faulted,
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
_MAX_FAILED_CASES = 3
_TORCH_CHOOSES = re.compile(
    r"relu|elu|clamp|clip|max|min|where|[<>?]|sort|topk|\bif\b|sign|hard|soft|thresh|nan_to|round|floor|ceil|trunc|long|int"
)
"""Parts of an expression that compare numbers, and so may keep or drop a NaN."""
_SMOOTH = (
    r"(?:std::)?(?:sqrt|rsqrt|fma|exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sinh|cosh|tanh|erf|erfc|fabs)f?"
)
"""Functions of C that pass a NaN on."""


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
            return _open_function(reference.text, text, accepted_text, kernel, source, host, deadline_s, seed)
        case "kernel":
            if baseline is None:
                return BadReference("there is no accepted kernel to compare with")
            return open_kernel(baseline, kernel, backend, deadline_s, seed)
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
        return [self._one(bound) for bound in bounds]

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
        deadline_s: float, seed: int, in_single: "Callable[[], FunctionYardstick | None]",
    ) -> None:  # fmt: skip
        self.words = name
        self.precise = precise
        self.function = function
        self.matched = matched
        self.prepared = prepared
        self.body = body
        self.deadline_s = deadline_s
        self.seed = seed
        self.in_single = in_single

    def plain(self, bound: Bound) -> Mapping[str, Array] | None:
        if not self.precise or (other := self.in_single()) is None:
            return None
        (answer,) = run_groups(other.prepared, [[other._launch(bound, decoded(bound), 0)]])
        if isinstance(answer, (Faulted, NotSupported)):
            return None
        outputs = {buffer.name: self.matched[buffer.name] for buffer in bound.checked}
        return {name: other._element(own).decode(answer[0].outputs[own]) for name, own in outputs.items()}

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
        groups = []
        for bound in bounds:
            inputs = decoded(bound)
            group = [self._launch(bound, inputs, 0)]
            if not bound.large:
                group.append(self._launch(bound, inputs, 1))
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
        return answers

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


def function_element(parameter: Parameter, precise: bool) -> Element:
    """The element a function's parameter has once it is compiled; `float` is `double` in a precise build."""
    element = element_of(parameter.element)
    assert element is not None, "checked when the function was matched"
    if precise and element.lanes == 1 and element.storage == np.float32 and not element.bfloat16:
        return FLOAT64
    return element


def _open_function(
    name: str, text: str, accepted_text: str | None, kernel: Kernel, source: Source, host: Backend | None,
    deadline_s: float, seed: int,
) -> "FunctionYardstick | BadReference":  # fmt: skip
    if host is None:
        return BadReference(f"the reference {name} needs a C++ compiler and none was found")
    home, functions = _functions(name, text, accepted_text, kernel)
    if not functions:
        return BadReference(f"there is no function `{name}` in this file")
    function = functions[0]
    matched: Mapping[str, str] | BadReference = BadReference("")
    for function in functions:
        matched = _match(function, kernel)
        if not isinstance(matched, BadReference):
            break
    if isinstance(matched, BadReference):
        return matched
    sliced = device_slice(home, keep_functions=(name,)).text
    # The same record for all candidates of a fill, so that they share one build of the function.
    nobody = evolve(
        kernel, parameters=function.parameters, start=0, end=0, body_start=0, body_end=0, line=0, launch_bounds=None
    )
    body = without_comments(home[function.body_start : function.body_end])
    agreed = matched

    def open_at(fp64: bool) -> "FunctionYardstick | BadReference":
        wanted = evolve(source, device_text=sliced, kernel=nobody, function=name, fp64=fp64, compiled=None)
        prepared = host.prepare(wanted)
        if isinstance(prepared, CompileFailed):
            error = prepared.errors[0] if prepared.errors else prepared.messages[0]
            return BadReference(f"the reference {name} cannot be compiled: line {error.line + 1}: {error.text}")
        if isinstance(prepared, NotSupported):
            return BadReference(f"the reference {name} cannot be compiled: {prepared.reason}")
        return FunctionYardstick(name, function, agreed, prepared, fp64, body, deadline_s, seed, in_single)

    def in_single() -> "FunctionYardstick | None":
        opened = open_at(False)
        return None if isinstance(opened, BadReference) else opened

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


def _match(function: Function, kernel: Kernel) -> "dict[str, str] | BadReference":
    """Kernel parameter -> function parameter: by name, else by position when both lists are alike."""
    own = {parameter.name: parameter for parameter in kernel.parameters}
    for parameter in function.parameters:
        element = element_of(parameter.element)
        if element is None or parameter.indirections > 1:
            return BadReference(
                f"parameter `{parameter.name}` of {function.name} has the type `{parameter.spelling}`, which is not known here"
            )
    names = [parameter.name for parameter in function.parameters]
    if all(name in own and own[name].pointer == p.pointer for name, p in zip(names, function.parameters, strict=True)):
        matched = {name: name for name in names}
    elif len(names) == len(own) and all(
        a.pointer == b.pointer for a, b in zip(kernel.parameters, function.parameters, strict=True)
    ):
        matched = {a.name: b.name for a, b in zip(kernel.parameters, function.parameters, strict=True)}
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

    def __init__(self, prepared: Prepared, kernel: Kernel, deadline_s: float, seed: int) -> None:
        self.prepared = prepared
        self.kernel = kernel
        self.deadline_s = deadline_s
        self.seed = seed

    def plain(self, bound: Bound) -> Mapping[str, Array] | None:
        return None

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
        return answers

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
        return Expectation(values, untouched, _spread(bound, values, shifted, _COARSE_STEP))


def open_kernel(
    baseline: Source, kernel: Kernel, backend: Backend, deadline_s: float, seed: int
) -> "KernelYardstick | BadReference":
    """The accepted kernel as a yardstick."""
    mine, theirs = ([(p.name, p.element, p.pointer) for p in k.parameters] for k in (kernel, baseline.kernel))
    if mine != theirs:
        return BadReference("the accepted kernel has other parameters than this one")
    prepared = backend.prepare(baseline)
    if isinstance(prepared, CompileFailed):
        return BadReference("the accepted kernel does not compile")
    if isinstance(prepared, NotSupported):
        return BadReference(f"the accepted kernel cannot be run: {prepared.reason}")
    return KernelYardstick(prepared, baseline.kernel, deadline_s, seed)


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
