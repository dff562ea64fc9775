"""What is judged of a kernel that ran, and of its text: one small function for each question.

`worker.verify` runs a kernel and asks these policies in turn. Each answers with a `Refusal`, which belongs to one check of
`worker.checks`, or with nothing; some only leave a note with the judge.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from dice_lsp.records import (
    Cheating,
    Role,
    Tolerance,
    Unsafe,
    Unverified,
    Verdict,
    Wrong,
)
from dice_lsp.source.expressions import evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.worker import machine_code
from dice_lsp.worker.arguments import (
    BadSpec,
    Bound,
    BoundBuffer,
    Distribution,
    case_label,
    plan,
    repeated,
)
from dice_lsp.worker.cases import given_dims
from dice_lsp.worker.checks import in_order
from dice_lsp.worker.code_notes import (
    own_stream,
    reads_clock,
    single_interface,
    vector_bytes,
)
from dice_lsp.worker.elements import Array, Kind, element_of
from dice_lsp.worker.launch import (
    Backend,
    Faulted,
    Launch,
    NotSupported,
    Prepared,
    Ran,
)
from dice_lsp.worker.reference import (
    Expectation,
    poison_left,
)
from dice_lsp.worker.tolerance import (
    MAX_SLACK,
    Difference,
    compare,
    differing,
    same_bits,
)

if TYPE_CHECKING:
    from dice_lsp.worker.verify import Judge

HAZARDS = frozenset(
    "out_of_bounds unwritten_output mutated_input race divergent_barrier deadlock timeout fault shared_memory "
    "non_deterministic uninitialized".split()
)
TELLING_ELEMENTS = 16
"""`none of 1 elements is written` says less than `1 of 1000`: a case this large is reported if it fails alike."""
_TELLING_RUNS = 3
"""How often a device is asked whether it was chance."""
POISONS = (0, 1, 0)
"""Poison pattern of the runs of a case."""
_PRECISION_RATIO = 8.0
_PRECISION_FLOOR = 0.01
"""Errors below this share of the tolerance are a matter of the last bit, and say nothing about precision."""
_FIXED = Tolerance("", rtol=1e-3)
"""What a comparison would allow that knows nothing of the length of sums."""
_NEARLY = Tolerance("", rtol=1e-2)
"""What half precision on the way leaves of a float."""


@frozen(eq=False)
class Try:
    """One case with one set of inputs, and the launches it is run with."""

    bound: Bound
    given: bool
    launches: tuple[Launch, ...]
    expectation: Expectation | None = None
    repeats: bool = False
    """A recorded launch of this very text: what else comes out than then is not the text's fault."""


@frozen(eq=False)
class Seen:
    """A try that ran, for the policies to judge."""

    judge: "Judge"
    t: Try
    runs: tuple[Ran, ...]
    prepared: Prepared

    def changed(self, buffer: BoundBuffer, run: Ran) -> Array:
        """Numbers that are not as in the first run."""
        return changed_numbers(buffer, self.runs[0].outputs[buffer.name], run.outputs[buffer.name])

    def always(self, buffer: BoundBuffer, launch: Launch) -> bool:
        """A launch gives what the first run gave, however often it is made."""
        return all(self._like_first(buffer, launch))

    def never(self, buffer: BoundBuffer, launch: Launch) -> bool:
        """A launch gives something else than the first run, however often it is made."""
        return not any(self._like_first(buffer, launch))

    def _like_first(self, buffer: BoundBuffer, launch: Launch) -> list[bool]:
        # The host runs alike each time; a device may do so by chance.
        results = self.prepared.run([launch] * (1 if self.judge.on_host else _TELLING_RUNS))
        return [isinstance(result, Ran) and not self.changed(buffer, result).any() for result in results] or [False]


@frozen
class Refusal:
    """A verdict against the kernel, and the check that it belongs to."""

    check: str
    verdict: Verdict


# What the text alone says


def _keeps_interface(judge: "Judge") -> Refusal | None:
    """A model that fills in a kernel may not change what its buffers hold: fewer digits would be compared more leniently."""
    if judge.job.reference_text is None:
        return None
    before = [k for k in parse(judge.job.reference_text).kernels if k.qualified_name == judge.job.kernel.qualified_name]
    if len(before) != 1:
        return None
    judge.had.add("interface")
    was = {parameter.name: parameter for parameter in before[0].parameters}
    for parameter in judge.job.kernel.parameters:
        old = was.get(parameter.name, parameter)
        if (old.type_name, old.pointer) != (parameter.type_name, parameter.pointer):
            where = f"`{parameter.name}` is `{parameter.spelling}`, was `{old.spelling}`"
            return Refusal("interface", Cheating("other_interface", where))
    return None


def _keeps_stream(judge: "Judge") -> Refusal | None:
    launch = own_stream(judge.text)
    if launch is None:
        return None
    return Refusal("stream", Cheating("own_stream", f"`{launch}` starts work that no timing of the kernel sees"))


def _keeps_launch_bounds(judge: "Judge") -> Refusal | None:
    """A device refuses a block of more threads than the code was made for, which an emulation would run."""
    bounds = judge.job.kernel.launch_bounds
    if bounds is None:
        return None
    for dims in given_dims(judge.spec):
        planned = plan(judge.spec, judge.job.kernel, dims)
        if isinstance(planned, BadSpec):
            continue
        try:
            most = evaluate(bounds.split(",")[0], planned.names)
        except (ValueError, ArithmeticError, RecursionError):
            return None  # what cannot be worked out here, the device knows
        if math.prod(planned.block) > most:
            where = f"launch refused: a block has {math.prod(planned.block)} threads, `__launch_bounds__` allows {most}"
            return Refusal("launched", Unsafe("never_launched", where, case_label(dims)))
    return None


# What all runs together say


def _did_something(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    """A launch that never happened leaves every output of every case as it was, whatever it should have written."""
    judge.idle = bool(seen) and all(_untouched(s) for s in seen)
    if not judge.idle:
        return None
    telling = [s for s in seen if max(buffer.count for buffer in s.t.bound.checked) >= TELLING_ELEMENTS]
    where = "no output is touched in any case: it was not launched, or it does nothing"
    return Refusal("launched", Unsafe("never_launched", where, (telling or list(seen))[0].t.bound.label))


def _has_something_to_do(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    """Where every output is right before the kernel runs, that it is right afterwards says nothing."""
    expected = [(s, s.t.expectation) for s in seen if s.t.expectation is not None]
    if not expected:
        return None
    if not all(_right_before(buffer, e) for s, e in expected for buffer in s.t.bound.checked):
        return None
    names = ", ".join(f"`{buffer.name}`" for buffer in expected[0][0].t.bound.checked)
    reason = f"{names} is right before the kernel runs, in every case: declare other values, e.g. `: normal`"
    if all(s.t.bound.recorded for s, _ in expected):
        reason = f"{names} was right before the kernel ran, in every recorded launch: record a first launch"
    return Refusal("launched", Unverified(reason, in_order(judge.had - judge.without - {"launched"})))


def _right_before(buffer: BoundBuffer, expectation: Expectation) -> bool:
    return buffer.data is not None and np.array_equal(
        buffer.element.decode(buffer.data), expectation.values[buffer.name], equal_nan=buffer.element.kind is Kind.FLOAT
    )


def _untouched(s: Seen) -> bool:
    """Every output is as it was, and something should have been written."""
    due = False
    for buffer in s.t.bound.checked:
        outputs = [run.outputs[buffer.name] for run in s.runs]
        expectation = s.t.expectation
        if buffer.data is None:
            if not poison_left(outputs[0], outputs[1]).all():
                return False
            allowed = None if expectation is None else expectation.untouched.get(buffer.name)
            due |= allowed is None or not bool(allowed.all())
        else:
            if not all(same_bits(output, buffer.data) for output in outputs):
                return False
            if expectation is not None:
                due |= not np.array_equal(buffer.element.decode(buffer.data), expectation.values[buffer.name])
    return due


# What the runs of one case say


def _keeps_inputs(s: Seen) -> Iterator[Refusal]:
    for buffer in s.t.bound.buffers.values():
        if buffer.spec.role is not Role.IN:
            continue
        for run in s.runs:
            changed = differing(run.outputs[buffer.name], buffer.initial(0))
            if changed.any():
                where = f"{buffer.name}[{int(np.argmax(changed))}] was changed"
                yield Refusal("inputs", Unsafe("mutated_input", where, s.t.bound.label))


def _writes_all(s: Seen) -> Iterator[Refusal]:
    if s.judge.idle:
        return  # that was `_did_something`'s to refuse
    for buffer in s.t.bound.checked:
        if buffer.data is not None:
            continue
        left = poison_left(s.runs[0].outputs[buffer.name], s.runs[1].outputs[buffer.name])
        expectation = s.t.expectation
        if expectation is not None and (allowed := expectation.untouched.get(buffer.name)) is not None:
            left &= ~allowed
        if not left.any():
            continue
        count = int(left.sum())
        if count == left.size:
            where = f"{buffer.name}: none of {left.size} elements is written"
        else:
            where = f"{buffer.name}: {count} of {left.size} elements, first {buffer.name}[{int(np.argmax(left))}]"
        yield Refusal("unwritten", Unsafe("unwritten_output", where, s.t.bound.label))


def _is_stable(s: Seen) -> Iterator[Refusal]:
    """Results that differ from run to run: by the order of threads, by chance, by place, or by what the output held."""
    judge, t = s.judge, s.t
    for buffer in t.bound.checked:
        outputs = [run.outputs[buffer.name] for run in s.runs]
        nothing = np.zeros(outputs[0].size, bool)
        kept = poison_left(outputs[0], outputs[1]) if buffer.data is None else nothing
        second = s.changed(buffer, s.runs[1]) & ~kept
        third = s.changed(buffer, s.runs[2]) if len(s.runs) > 2 else nothing
        if not second.any() and not third.any():
            continue
        if judge.atomics and judge.all_close(t, buffer, outputs):
            continue
        where = f"{buffer.name}[{int(np.argmax(second | third))}]"
        told = _by_second_run(s, buffer, where) if not third.any() else None
        told = _by_third_run(s, buffer, where) if not second.any() else told
        if told is not None:
            yield told
        elif judge.atomics:
            if t.expectation is None:
                reason = "the results depend on the order of atomic operations, and there is no reference"
                yield Refusal("block_order" if judge.on_host else "determinism", Unverified(reason, ()))
            # Else the comparison with the reference will name the wrong one.
        elif judge.on_host:
            yield Refusal("block_order", Unsafe("race", f"{where} depends on the order of the threads", t.bound.label))
        else:
            yield Refusal("determinism", Unsafe("non_deterministic", f"{where} changes from run to run", t.bound.label))


def _by_second_run(s: Seen, buffer: BoundBuffer, where: str) -> Refusal | None:
    """The second run had another order, another poison and another place; some more tell which of them it was."""
    launch = s.t.launches[1]
    if not s.never(buffer, launch):
        return None
    if s.always(buffer, like(launch, s.t.bound, poison=POISONS[0])):
        hint = f": declare `io {buffer.name}[...]: zeros` if it is added to" if buffer.data is None else ""
        what = f"{where} depends on what it held before{hint}"
        return Refusal("unwritten", Unsafe("uninitialized", what, s.t.bound.label))
    if s.always(buffer, evolve(launch, guard=s.t.launches[0].guard)):
        what = f"{where} depends on where the buffers lie"
        return Refusal("addresses", Unsafe("address_dependent", what, s.t.bound.label))
    return None


def _by_third_run(s: Seen, buffer: BoundBuffer, where: str) -> Refusal | None:
    """Only the third run is different, which had room for fewer blocks at a time, if that is what makes the difference."""
    launch = s.t.launches[2]
    if not launch.extra_smem_bytes or not s.never(buffer, launch):
        return None
    if not s.always(buffer, evolve(launch, extra_smem_bytes=0)):
        return None
    what = f"{where} depends on how many blocks are resident"
    return Refusal("occupancy", Unsafe("occupancy_dependent", what, s.t.bound.label))


def _agrees(s: Seen) -> Iterator[Refusal]:
    judge, t = s.judge, s.t
    if t.expectation is None:
        return
    for buffer in t.bound.checked:
        # Without atomics all runs have just been found equal.
        for poison, run in list(zip(POISONS, s.runs, strict=False))[: None if judge.atomics else 1]:
            got = run.outputs[buffer.name]
            difference = judge.difference(t, buffer, got, poison)
            if difference.agrees:
                if difference.max_error > judge.max_error:
                    judge.max_error, judge.worst = difference.max_error, (t, buffer)
            elif judge.settled(t, buffer):
                yield _wrong(s, buffer, got, difference)


def _wrong(s: Seen, buffer: BoundBuffer, got: Array, difference: Difference) -> Refusal:
    judge, t = s.judge, s.t
    if t.repeats:
        where = f"{buffer.name}[{difference.index}] is {difference.got}, the program's run left {difference.expected}"
        other = "the emulation computes something else than the GPU" if judge.on_host else "something was not recorded"
        said = f"{where} in {t.bound.label}, with the same text: the kernel is not deterministic, or {other}"
        return Refusal("cases", Unverified(said, in_order(judge.had - judge.without)))
    if not judge.on_host and judge.right_alone(t, buffer):
        where = (
            f"{buffer.name} is right in every fresh process and wrong after other launches:"
            " results are kept from earlier launches, or threads race"
        )
        return Refusal("state", Cheating("stale_result", where))
    if (reason := judge.undefined(t)) is not None:
        return Refusal("cases", Unverified(reason, in_order(judge.had - judge.without)))
    at = f"{buffer.name}[{difference.index}]"
    if (why := _digits_lost(s, buffer, got, difference)) is not None:
        where = f"{at} is {difference.got}, expected {difference.expected}: {why}"
        return Refusal("precision", Unsafe("precision_dropped", where, t.bound.label))
    check = _catcher(s, buffer, got, difference)
    return Refusal(
        check,
        Wrong(
            buffer.name, difference.index, difference.got, difference.expected, t.bound.label + _MORE.get(check, ""),
            difference.wrong_elements, difference.total_elements,
        ),
    )  # fmt: skip


_MORE = {
    "tensor": ", every element is off the same way",
    "restored": ", the reference leaves it as it was",
    "scaling": ", more than a sum of this length rounds to",
    "exact": ", integers must agree exactly",
}
"""What the case is followed by when a check other than the plain comparison has found the difference."""


def _digits_lost(s: Seen, buffer: BoundBuffer, got: Array, difference: Difference) -> str | None:
    """The result is near the right one, and its text says why it is no nearer: it computes in a shorter type."""
    if difference.rule == "precision":
        return "no more digits than a float has"
    judge = s.judge
    if difference.rule not in ("element", "bias") or not single_interface(judge.job.kernel, judge.spec.template):
        return None
    word = judge.narrow_word()
    if word is None or not _agrees_within(s, buffer, got, _NEARLY):
        return None
    return f"it computes with `{word}`"


BY_INPUTS = {
    Distribution.DEFAULT: "cases",
    Distribution.NAN: "nan",
    Distribution.INF: "inf",
    Distribution.FRESH: "seeds",
    Distribution.ENDS: "index_ranges",
}


def _catcher(s: Seen, buffer: BoundBuffer, got: Array, difference: Difference) -> str:
    """The check that a wrong number belongs to: the one without which it would have passed."""
    drawn = s.t.bound.distribution
    by_inputs = BY_INPUTS.get(drawn, "distributions")
    if difference.rule == "unchanged" or _only_beside(s, buffer, got):
        return "restored"
    if difference.rule == "nan":
        return by_inputs if drawn in (Distribution.NAN, Distribution.INF) else "nan"
    if difference.rule == "bias":
        return "tensor"
    if "fp64" in s.judge.without and _agrees_in_single(s, buffer, got):
        return "fp64"
    integers = buffer.element.kind is not Kind.FLOAT
    if _agrees_within(s, buffer, got, _NEARLY_EXACT if integers else _FIXED):
        return "exact" if integers else "scaling"
    return by_inputs


def _agrees_within(s: Seen, buffer: BoundBuffer, got: Array, tolerance: Tolerance) -> bool:
    assert s.t.expectation is not None
    expected, spread = s.t.expectation.values[buffer.name], s.t.expectation.spread.get(buffer.name)
    untouched = s.t.expectation.untouched.get(buffer.name)
    if untouched is not None:
        got, expected = got[~untouched], expected[~untouched]
        spread = None if spread is None else spread[~untouched]
    return compare(got, expected, buffer.element, spread=spread, tolerance=tolerance).agrees


def _only_beside(s: Seen, buffer: BoundBuffer, got: Array) -> bool:
    """Only what the reference leaves as it was before the run is wrong."""
    assert s.t.expectation is not None
    if buffer.data is None or s.t.expectation.untouched.get(buffer.name) is not None:
        return False
    left = buffer.element.decode(buffer.data) == s.t.expectation.values[buffer.name]
    if not left.any():
        return False
    return s.judge.against(s.t, buffer, np.where(left, buffer.data, got), MAX_SLACK).agrees


def _agrees_in_single(s: Seen, buffer: BoundBuffer, got: Array) -> bool:
    plain = s.judge.in_single(s.t)
    if plain is None or s.t.expectation is None:
        return False
    values = {**s.t.expectation.values, buffer.name: plain[buffer.name]}
    relaxed = evolve(s.t, expectation=evolve(s.t.expectation, values=values))
    return s.judge.against(relaxed, buffer, got, 1.0).agrees


# What is left to say of a kernel whose results are right


def _keeps_no_state(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    changed = dict.fromkeys(name for s in seen for run in s.runs for name in run.changed_state)
    if not changed:
        return None
    name = next(iter(changed))
    what = f"`{name}`" if name.isidentifier() else name
    reason = f"keeps state in {what} between launches"
    return Refusal("state", Unverified(reason, in_order(judge.had - judge.without - {"state"})))


def _cannot_tell_the_time(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    compiled = judge.source.compiled
    if not reads_clock(judge.text) and not (compiled is not None and machine_code.reads_clock(compiled)):
        return None
    reason = "reads the clock, so it may do something else in the next run"
    return Refusal("code_notes", Unverified(reason, in_order(judge.had - judge.without)))


def _keeps_its_digits(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    """Only notes: a result inside the tolerance may still be worse than it was."""
    if "precision" in judge.without or not single_interface(judge.job.kernel, judge.spec.template):
        return None
    if (word := judge.narrow_word()) is not None:
        judge.notes.append(f"computes with `{word}`, within the tolerance")
    if judge.worst is None or judge.max_error < _PRECISION_RATIO * _PRECISION_FLOOR:
        return None
    if judge.yardstick is None or not judge.yardstick.precise:
        return None
    accepted = judge.accepted_error(*judge.worst) if judge.baseline is not None else None
    if accepted is not None and judge.max_error > _PRECISION_RATIO * max(accepted, _PRECISION_FLOOR):
        ratio = judge.max_error / max(accepted, _PRECISION_FLOOR)
        judge.notes.append(f"error {ratio:.0f}x the accepted kernel's")
    return None


def _stands_any_alignment(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    """Only a note: callers who pass a pointer into the middle of a buffer should know."""
    if "alignment" in judge.without:
        return None
    width = vector_bytes(judge.text, judge.job.kernel, judge.spec.template)
    s = next((s for s in seen if max(b.count for b in s.t.bound.checked) >= TELLING_ELEMENTS), seen[0])
    shift = max(buffer.element.itemsize for buffer in s.t.bound.buffers.values())
    if shift >= width:
        return None
    results = s.prepared.run([evolve(s.t.launches[0], shift_bytes=shift)])
    if not results or isinstance(results[0], NotSupported):
        return None
    judge.had.add("alignment")
    if isinstance(results[0], Faulted):
        accepted = judge.accepted_text
        new = accepted is not None and vector_bytes(accepted, judge.job.kernel, judge.spec.template) < width
        judge.notes.append(f"assumes pointers aligned to {width} bytes" + (", which is new" if new else ""))
    return None


_HUGE_BYTES = 1 << 31
"""Offsets beyond this do not fit into a signed integer of 32 bits."""
_PROVING_REPEATS = 4


def _reaches_far(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    """A kernel whose size has 64 bits must be right beyond 2 GB, which no reference could be computed for."""
    dim = _wide_dim(judge)
    if dim is None or "cases" in judge.without:
        return None
    for s in reversed([s for s in seen if s.t.bound.spec is judge.spec]):
        bound = s.t.bound
        repeats = _HUGE_BYTES // max(buffer.count * buffer.element.itemsize for buffer in bound.buffers.values()) + 2
        if _may_be_repeated(s, repeats):
            answer = _as_repeated(s, dim, repeats)
            if answer == "right":
                judge.notes.append(f"right beyond 2 GB too: samples of {dim}={repeats * bound.dims[dim]}")
            return answer if isinstance(answer, Refusal) else None
    return None


def _reaches_the_benchmark(judge: "Judge", seen: Sequence[Seen]) -> Refusal | None:
    """A size that is timed but too large for a reference is run too: a kernel could be right at all others."""
    if "cases" in judge.without or judge.atomics:
        return None
    mine = [s for s in seen if s.t.bound.spec is judge.spec]
    compared = {tuple(s.t.bound.dims.items()) for s in mine}
    for dims in given_dims(judge.spec):
        if tuple(dims.items()) in compared:
            continue
        for s in reversed(mine):
            own = s.t.bound.dims
            other = [name for name, value in dims.items() if value != own[name]]
            if len(other) != 1 or dims[other[0]] % own[other[0]]:
                continue
            repeats = dims[other[0]] // own[other[0]]
            if repeats > 1 and _may_be_repeated(s, repeats):
                answer = _as_repeated(s, other[0], repeats)
                if isinstance(answer, Refusal):
                    return answer
                break
    return None


def _may_be_repeated(s: Seen, repeats: int) -> bool:
    """The case's buffers can be laid one behind the other so many times, in half of the device's memory at most."""
    periods = [buffer.count * buffer.element.itemsize for buffer in s.t.bound.buffers.values()]
    plain = s.t.bound.distribution is Distribution.DEFAULT and not s.t.bound.large
    return plain and not any(p % 16 for p in periods) and repeats * sum(periods) <= _memory_bytes(s.judge.backend) / 2


def _as_repeated(s: Seen, dim: str, repeats: int) -> "Refusal | str | None":
    """Run a verified case over and over again, as one large case: `right`, a refusal, or None where that says nothing.

    Where the kernel maps repeated inputs to repeated outputs, as every elementwise one does and as one run of four
    repetitions shows, the outputs of the verified case over and over again are what must come out.
    """
    if _run_repeated(s, dim, _PROVING_REPEATS, tuple(range(_PROVING_REPEATS))) != ():
        return None
    edges = {_HUGE_BYTES // (buffer.count * buffer.element.itemsize) for buffer in s.t.bound.checked}
    windows = sorted({w for e in edges for w in (0, e - 1, e, repeats // 2, repeats - 1) if 0 <= w < repeats})
    wrong = _run_repeated(s, dim, repeats, tuple(windows))
    if wrong is None or (isinstance(wrong, Faulted) and wrong.hazard == "timeout"):
        return None
    label = f"{case_label({**s.t.bound.dims, dim: repeats * s.t.bound.dims[dim]})}, one case over and over again"
    if isinstance(wrong, Faulted):
        return Refusal("cases", Unsafe(wrong.hazard if wrong.hazard in HAZARDS else "fault", wrong.where, label))
    if wrong:
        name, index, got, expected, count, total = wrong
        return Refusal("cases", Wrong(name, index, got, expected, label, count, total))
    return "right"


def _run_repeated(
    s: Seen, dim: str, repeats: int, windows: tuple[int, ...]
) -> "tuple[()] | tuple[str, int, str, str, int, int] | Faulted | None":
    """Run a case repeated: nothing wrong is `()`, a wrong number is told; None where it cannot be run so."""
    bound = s.t.bound
    dims = {**bound.dims, dim: repeats * bound.dims[dim]}
    launch = repeated(s.judge.spec, s.judge.job.kernel, bound, dims, repeats, windows)
    if launch is None:
        return None
    results = s.prepared.run([evolve(launch, deadline_s=s.judge.job.run_deadline_s)])
    if not results or isinstance(results[0], NotSupported):
        return None
    if isinstance(results[0], Faulted):
        return results[0]
    for buffer in bound.checked:
        expected = np.tile(s.runs[0].outputs[buffer.name], len(windows))
        changed = changed_numbers(buffer, expected, results[0].outputs[buffer.name])
        if changed.any():
            at = int(np.argmax(changed))
            numbers = buffer.count * buffer.element.lanes
            index = windows[at // numbers] * numbers + at % numbers
            got, wanted = (
                str(buffer.element.decode(a[at : at + 1])[0]) for a in (results[0].outputs[buffer.name], expected)
            )
            return buffer.name, index, got, wanted, int(changed.sum()), changed.size
    return ()


def _wide_dim(judge: "Judge") -> str | None:
    """The size of the launch that is a parameter of 64 bits, if there is one alone."""
    if judge.on_host or judge.atomics:
        return None
    names = {dim.name for dim in judge.spec.dims}
    wide = []
    for parameter in judge.job.kernel.parameters:
        element = element_of(judge.spec.template.get(parameter.element, parameter.element))
        if parameter.name not in names or parameter.pointer or element is None:
            continue
        if element.kind is Kind.INT and element.storage.itemsize == 8:
            wide.append(parameter.name)
    return wide[0] if len(wide) == 1 else None


def _memory_bytes(backend: Backend) -> int:
    info: Any = getattr(backend, "info", None)
    return 0 if info is None else int(info.memory_bytes)


_NEARLY_EXACT = Tolerance("", rtol=1e-3, atol=1.0)
OF_THE_TEXT: "tuple[Callable[[Judge], Refusal | None], ...]" = (_keeps_interface, _keeps_stream, _keeps_launch_bounds)
OF_ALL_RUNS: "tuple[Callable[[Judge, Sequence[Seen]], Refusal | None], ...]" = (_did_something, _has_something_to_do)
OF_A_CASE: "tuple[Callable[[Seen], Iterator[Refusal]], ...]" = (_keeps_inputs, _writes_all, _is_stable, _agrees)
OF_THE_WHOLE: "tuple[Callable[[Judge, Sequence[Seen]], Refusal | None], ...]" = (
    _keeps_no_state, _cannot_tell_the_time, _keeps_its_digits, _stands_any_alignment, _reaches_the_benchmark, _reaches_far,
)  # fmt: skip


def like(launch: Launch, bound: Bound, poison: int = 0) -> Launch:
    return bound.launch(
        poison=poison, order=launch.order, guard=launch.guard, seed=launch.seed, deadline_s=launch.deadline_s
    )


def changed_numbers(buffer: BoundBuffer, a: Array, b: Array) -> Array:
    """Numbers whose bits differ; one NaN is as good as another."""
    if same_bits(a, b):
        return np.zeros(a.size, bool)
    changed = differing(a, b)
    if buffer.element.kind is Kind.FLOAT:
        changed &= ~(np.isnan(buffer.element.decode(a)) & np.isnan(buffer.element.decode(b)))
    return changed
