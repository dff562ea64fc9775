"""Is a kernel safe, and are its results right? Runs it on a back end and answers with one `Verdict`.

A verdict comes from outside the kernel: expected values stay in this process, outputs are poisoned twice with
different patterns, inputs are compared with what they were, guards stand on both sides of every buffer, and on the host
the threads and blocks run in three orders. All runs of all cases go to the back end in one call, smallest case first.

What came out is judged by policies, one small function each, in the order in which a person would want to know. Each
refusal belongs to one check of `worker.checks`, and is not made when that check is switched off.
"""

import functools
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from dice_lsp.records import (
    Cheating,
    CompileFailed,
    JudgeJob,
    Origin,
    Reference,
    Role,
    Tolerance,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.source.expressions import evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.source.tokens import without_comments
from dice_lsp.worker import machine_code
from dice_lsp.worker.arguments import (
    BadSpec,
    Bound,
    BoundBuffer,
    Distribution,
    bind,
    case_label,
    declares_range,
    is_free,
    plan,
    repeated,
)
from dice_lsp.worker.cases import DEVICE_BUDGET, HOST_BUDGET, Case, choose_cases, estimated_work, given_dims
from dice_lsp.worker.checks import check_of, in_order
from dice_lsp.worker.code_notes import (
    code_notes,
    has_atomics,
    narrow_word,
    own_stream,
    own_text,
    reads_clock,
    single_interface,
    vector_bytes,
)
from dice_lsp.worker.elements import Array, Element, Kind, element_of
from dice_lsp.worker.launch import (
    READ_UNORDERED,
    Backend,
    BlockOrder,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Prepared,
    Ran,
    Source,
)
from dice_lsp.worker.reference import (
    BadReference,
    Expectation,
    Yardstick,
    input_size,
    longest_sum,
    open_kernel,
    open_reference,
    poison_left,
    run_groups,
    whole,
)
from dice_lsp.worker.tolerance import (
    MAX_SLACK,
    Difference,
    at_edges,
    choose,
    compare,
    compare_unchanged,
    differing,
    either,
    same_bits,
)

_HAZARDS = frozenset(
    "out_of_bounds unwritten_output mutated_input race divergent_barrier deadlock timeout fault shared_memory "
    "non_deterministic uninitialized".split()
)
_NEVER_LAUNCHED = ("launch refused", "the launch is invalid")
"""How the back ends begin to say that a kernel was not even started."""
_TELLING_ELEMENTS = 16
"""`none of 1 elements is written` says less than `1 of 1000`: a case this large is reported if it fails alike."""
_PROBE_ELEMENTS = 20_000
"""Other distributions are tried at the largest case with at most this many elements."""
_TELLING_RUNS = 3
"""How often a device is asked whether it was chance."""
_GUESSED = (Origin.INFERRED, Origin.DEFAULT)
_POISONS = (0, 1, 0)
"""Poison pattern of the runs of a case."""
_LEAST_DEADLINE_S = 2.0
_DEADLINE_S_PER_STEP = 2e-6
_PRECISION_RATIO = 8.0
_PRECISION_FLOOR = 0.01
"""Errors below this share of the tolerance are a matter of the last bit, and say nothing about precision."""
_FIXED = Tolerance("", rtol=1e-3)
"""What a comparison would allow that knows nothing of the length of sums."""
_NEARLY = Tolerance("", rtol=1e-2)
"""What half precision on the way leaves of a float."""

_NO_OPINION = Difference(np.inf, 1, 1, 0)

Progress = Callable[[str], None]


def verify(
    job: JudgeJob,
    source: Source,
    backend: Backend,
    host: Backend | None,
    *,
    check_cancelled: Callable[[], None] = lambda: None,
    on_progress: Progress | None = None,
    baseline_source: Source | None = None,
    without: frozenset[str] = frozenset(),
) -> Verdict:
    """Judge one kernel.

    Args:
        job: the kernel with its launch spec, seed and deadlines.
        source: the kernel as the back end takes it.
        backend: where it runs.
        host: where reference functions run; None when there is no C++ compiler.
        check_cancelled: called between steps; whatever it raises ends the judging.
        on_progress: told in a few words what is being done.
        baseline_source: the accepted kernel, the reference when the spec names no other.
        without: names of checks that do not refuse, for tests of the checks themselves.
    """
    judge = _Judge(job, source, backend, host, check_cancelled, on_progress or (lambda words: None), baseline_source)
    judge.without = frozenset(in_order(without))
    return judge.verdict()


@frozen(eq=False)
class _Try:
    """One case with one set of inputs, and the launches it is run with."""

    bound: Bound
    given: bool
    launches: tuple[Launch, ...]
    expectation: Expectation | None = None


@frozen(eq=False)
class _Seen:
    """A try that ran, for the policies to judge."""

    judge: "_Judge"
    t: _Try
    runs: tuple[Ran, ...]
    prepared: Prepared

    def changed(self, buffer: BoundBuffer, run: Ran) -> Array:
        """Numbers that are not as in the first run."""
        return _changed(buffer, self.runs[0].outputs[buffer.name], run.outputs[buffer.name])

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
class _Refusal:
    """A verdict against the kernel, and the check that it belongs to."""

    check: str
    verdict: Verdict


class _Judge:
    without: frozenset[str] = frozenset()

    def __init__(
        self, job: JudgeJob, source: Source, backend: Backend, host: Backend | None,
        check_cancelled: Callable[[], None], on_progress: Progress, baseline: Source | None,
    ) -> None:  # fmt: skip
        self.job = job
        self.spec = job.spec
        self.source = source
        self.backend = backend
        self.host = host
        self.check_cancelled = check_cancelled
        self.on_progress = on_progress
        self.baseline = None if baseline is not None and _same_kernel(source, baseline) else baseline
        self.folder = os.path.dirname(job.path) or None
        self.max_error = 0.0
        self.yardstick: Yardstick | None = None
        self.plain: dict[int, Mapping[str, Array] | None] = {}
        self.exact: dict[int, Expectation | None] = {}
        self.edges: dict[int, Sequence[Mapping[str, Array]]] = {}
        self.on_host = backend.kind == "host"
        self.text = own_text(source)
        # A word in a comment must not excuse different results.
        self.atomics = has_atomics(self.text)
        self.had = {"unwritten", "addresses", "bounds", "inputs", "launched", "stream", "state", "code_notes"}
        self.had.add("block_order" if self.on_host else "determinism")
        self.notes: list[str] = []
        self.idle = False
        """No output was touched in any case."""
        self.worst: tuple[_Try, BoundBuffer] | None = None

    def verdict(self) -> Verdict:
        if self.spec.skip:
            return Unverified("skipped: its //dice: line says so")
        if not self.spec.launchable:
            return Unverified(self.spec.unknown[0] if self.spec.unknown else "the launch is not known")
        if (refusal := self._first(policy(self) for policy in _OF_THE_TEXT)) is not None:
            return refusal
        self.check_cancelled()
        prepared = self.backend.prepare(self.source)
        if isinstance(prepared, NotSupported):
            return Unverified(prepared.reason)
        if isinstance(prepared, CompileFailed):
            return Unverified(f"{prepared.compiler} does not take it: {_first_error(prepared)}")
        tries = self._tries()
        if isinstance(tries, BadSpec):
            return Unverified(tries.reason)
        self.check_cancelled()
        self.on_progress("reference")
        words, problem = "", None
        for reference in self._references():
            answer = self._expected(tries, reference)
            if isinstance(answer, BadReference):
                problem = problem or answer
                continue
            words, tries = answer
            problem = None
            break
        if problem is not None:
            tries = [t for t in tries if t.bound.distribution is Distribution.DEFAULT]
        self.check_cancelled()
        self.on_progress(f"running {len(tries)} cases")
        seen = self._run(tries, prepared)
        if not isinstance(seen, list):
            return seen
        self.check_cancelled()
        refusal = self._refusal(seen)
        if refusal is not None:
            return refusal
        if problem is not None:
            return Unverified(problem.reason, in_order(self.had - self.without))
        if not seen:
            return Unverified("no case was left to compare", ())
        self._name_checks(seen)
        if (refusal := self._first(policy(self, seen) for policy in _OF_THE_WHOLE)) is not None:
            return refusal
        sizes = sum(1 for s in seen if s.t.bound.distribution is Distribution.DEFAULT)
        checks = in_order(self.had - self.without)
        return Verified(sizes, self.max_error, self.backend.name, words, checks, self._all_notes(seen))

    def _first(self, refusals: "Iterator[_Refusal | None]") -> Verdict | None:
        """The first refusal that is not switched off."""
        for refusal in refusals:
            if refusal is not None and refusal.check not in self.without:
                return refusal.verdict
        return None

    def _all_notes(self, seen: "Sequence[_Seen]") -> tuple[str, ...]:
        notes = [] if "code_notes" in self.without else [*code_notes(self.text, self.source.compiled)]
        raced = [note for s in seen for run in s.runs for note in run.notes if note.endswith(READ_UNORDERED)]
        return tuple(dict.fromkeys([*self.notes, *raced, *notes]))

    # What is run

    def _tries(self) -> "list[_Try] | BadSpec":
        budget = HOST_BUDGET if self.on_host else DEVICE_BUDGET
        cases = choose_cases(self.spec, self.job.kernel, budget)
        if isinstance(cases, BadSpec):
            return cases
        tries: list[_Try] = []
        for number, case in enumerate(cases):
            bound = bind(self.spec, self.job.kernel, case.dims, self.job.seed + number, folder=self.folder)
            if isinstance(bound, BadSpec):
                if case.given:
                    return bound
                continue
            steps = estimated_work(case.plan)
            tries.append(_Try(bound, case.given, self._launches(bound, steps, all_orders=not bound.large)))
        if not tries:
            return BadSpec("no case of this kernel can be launched")
        small = [case for case in cases if case.plan.elements <= _PROBE_ELEMENTS]
        probe = small[-1] if small else cases[0]
        for distribution in Distribution:
            if distribution in (Distribution.DEFAULT, Distribution.FRESH) or not self._varies(distribution):
                continue
            tries += self._drawn(probe, self.job.seed + 1000 + len(tries), distribution)
            if distribution is Distribution.LARGE:
                # A maximum that misses an element overflows only where that one is the greatest: long rows, and twice.
                longest = max(small or [probe], key=lambda case: max(case.dims.values(), default=0))
                for _ in range(2):
                    tries += self._drawn(longest, self.job.seed + 1000 + len(tries), distribution)
        for case in [case for case in small if case.given] or [probe]:
            tries += self._drawn(case, secrets.randbits(48), Distribution.FRESH)
        return tries

    def _drawn(self, case: Case, seed: int, distribution: Distribution) -> list[_Try]:
        bound = bind(self.spec, self.job.kernel, case.dims, seed, distribution, folder=self.folder)
        if isinstance(bound, BadSpec):
            return []
        return [_Try(bound, False, self._launches(bound, estimated_work(case.plan), all_orders=False))]

    def _varies(self, distribution: Distribution) -> bool:
        """Some input is drawn differently under this distribution, and what then comes out is defined."""
        elements = {p.name: self._kind(p.name) for p in self.job.kernel.parameters if p.pointer}
        inputs = [b for b in self.spec.buffers if b.role in (Role.IN, Role.IO) and is_free(b.init)]
        floats = [b for b in inputs if elements.get(b.name) is Kind.FLOAT]
        integer_results = any(
            b.role in (Role.OUT, Role.IO) and elements.get(b.name) is not Kind.FLOAT for b in self.spec.buffers
        )
        if distribution is Distribution.ENDS:
            return any(b.role in (Role.IN, Role.IO) and declares_range(b) for b in self.spec.buffers)
        if distribution is Distribution.EQUAL and not floats:
            return any(b.role is Role.IN and (is_free(b.init) or declares_range(b)) for b in self.spec.buffers)
        if distribution is Distribution.LARGE and any(elements.get(b.name) is Kind.INT for b in inputs):
            return True
        if distribution is Distribution.NEGATIVE and not floats:
            return any(self._signed(b.name) for b in inputs)
        # Equal floats have no first greatest one that every honest argmax would agree on.
        return bool(floats) and not (integer_results and distribution is not Distribution.LARGE)

    def _kind(self, name: str) -> Kind | None:
        element = self._element(name)
        return None if element is None else element.kind

    def _signed(self, name: str) -> bool:
        element = self._element(name)
        return element is not None and element.storage.kind == "i" and element.kind is Kind.INT

    def _element(self, name: str) -> Element | None:
        parameter = next(p for p in self.job.kernel.parameters if p.name == name)
        return element_of(self.spec.template.get(parameter.element, parameter.element))

    def _launches(self, bound: Bound, steps: int, all_orders: bool) -> tuple[Launch, ...]:
        allowed = max(_LEAST_DEADLINE_S, steps * _DEADLINE_S_PER_STEP)
        launch = functools.partial(bound.launch, seed=self.job.seed, deadline_s=min(self.job.run_deadline_s, allowed))
        runs = [
            launch(poison=_POISONS[0], order=BlockOrder.ASCENDING, guard=Guard.RIGHT),
            launch(poison=_POISONS[1], order=BlockOrder.DESCENDING, guard=Guard.LEFT),
        ]
        if all_orders:
            extra = _spare_smem_bytes(self.backend, self.source, bound)
            if extra:
                self.had.add("occupancy")
            runs.append(launch(poison=_POISONS[2], order=BlockOrder.RANDOM, guard=Guard.RIGHT, extra_smem_bytes=extra))
        return tuple(runs)

    def _run(self, tries: Sequence[_Try], prepared: Prepared) -> "list[_Seen] | Verdict":
        """Run all launches in one call; the verdict when one of them fails.

        A case that fails a check which is switched off is left out, and the others go on.
        """
        seen: list[_Seen] = []
        waiting = list(tries)
        while waiting:
            results = prepared.run([launch for t in waiting for launch in t.launches])
            at = 0
            for number, t in enumerate(waiting):
                runs = results[at : at + len(t.launches)]
                at += len(t.launches)
                bad = next((n for n, result in enumerate(runs) if not isinstance(result, Ran)), None)
                if bad is None and len(runs) == len(t.launches):
                    seen.append(_Seen(self, t, tuple(run for run in runs if isinstance(run, Ran)), prepared))
                    continue
                if bad is None:
                    return Unverified("the back end ended before all cases were run")
                result = runs[bad]
                if isinstance(result, NotSupported):
                    return Unverified(result.reason)
                assert isinstance(result, Faulted)
                refusal = self._fault(t, bad, result, prepared)
                if refusal.check not in self.without:
                    return refusal.verdict
                waiting = waiting[number + 1 :]
                break
            else:
                break
        return seen

    # What is expected

    def _references(self) -> tuple[Reference, ...]:
        """What to compare with, best first: a guessed function gives way to the accepted kernel if it cannot be used."""
        accepted = Reference("kernel", "", Origin.DEFAULT)
        named = self.spec.reference
        if named is None:
            return (accepted,)
        return (named,) if named.origin is Origin.DIRECTIVE or self.baseline is None else (named, accepted)

    def _expected(self, tries: "Sequence[_Try]", reference: Reference) -> "tuple[str, list[_Try]] | BadReference":
        """The reference in words, and the tries it can do with their expectations."""
        if reference.via == "kernel" and self.baseline is None:
            return BadReference("no reference: name one with `ref` in a //dice: line")
        yardstick = open_reference(
            reference,
            text=self.job.text,
            accepted_text=self.job.reference_text or self.job.baseline_text,
            kernel=self.job.kernel,
            buffers=self.spec.buffers,
            source=self.source,
            backend=self.backend,
            host=self.host,
            baseline=self.baseline,
            deadline_s=self.job.run_deadline_s,
            seed=self.job.seed,
        )
        if isinstance(yardstick, BadReference):
            return yardstick
        answers = yardstick.expect([t.bound for t in tries])
        kept: list[_Try] = []
        for t, answer in zip(tries, answers, strict=True):
            if isinstance(answer, BadReference):
                if t.given:
                    return answer
                continue  # the reference is not made for this derived size
            if t.bound.distribution is not Distribution.DEFAULT and not _defined(t.bound, answer, yardstick):
                continue
            if "fp64" in self.without and (plain := yardstick.plain(t.bound)) is not None:
                answer = evolve(answer, values={**answer.values, **plain})
            kept.append(evolve(t, expectation=answer))
        for buffer in kept[0].bound.checked if kept else ():
            untouched = [t.expectation.untouched.get(buffer.name) for t in kept if t.expectation is not None]
            if all(mask is not None and mask.all() for mask in untouched):
                return BadReference(f"{yardstick.words} writes nothing to `{buffer.name}`, so it is no reference")
        if not any(t.bound.distribution is Distribution.DEFAULT for t in kept):
            return next(answer for answer in answers if isinstance(answer, BadReference))
        self.yardstick = yardstick
        return yardstick.words, kept

    # What came out

    def _fault(self, t: _Try, number: int, result: Faulted, prepared: Prepared) -> _Refusal:
        """What a launch that did not end as it should says against the kernel."""
        launch = t.launches[number]
        hazard = {"mutated": "mutated_input"}.get(result.hazard, result.hazard)
        hazard = hazard if hazard in _HAZARDS else "fault"
        if hazard == "fault" and result.where.startswith(_NEVER_LAUNCHED):
            hazard = "never_launched"
        check = check_of(hazard)
        if hazard == "mutated_input":
            return _Refusal(check, self._mutated(result.where, t))
        if hazard == "out_of_bounds" and (doubt := self._doubtful(t, launch, result, prepared)) is not None:
            return _Refusal(check, doubt)
        if hazard == "timeout" and launch.extra_smem_bytes:
            where = f"{result.where} when fewer blocks are resident, as on a smaller device"
            return _Refusal("occupancy", Unsafe("occupancy_dependent", where, t.bound.label))
        if hazard in ("fault", "never_launched") and launch.extra_smem_bytes:
            return _Refusal("occupancy", Unverified(f"does not run with fewer blocks resident: {result.where}"))
        return _Refusal(check, Unsafe(hazard, result.where, t.bound.label))

    def _mutated(self, where: str, t: _Try) -> Verdict:
        name = where.split("[")[0].strip()
        parameter = next((p for p in self.job.kernel.parameters if p.name == name), None)
        buffer = t.bound.buffers.get(name)
        if parameter is not None and not parameter.const and buffer is not None and buffer.spec.origin in _GUESSED:
            return Unverified(
                f"`{name}` was taken for an input, but is written: write `out {name}[...]` in a //dice: line"
            )
        return Unsafe("mutated_input", where, t.bound.label)

    def _doubtful(self, t: _Try, launch: Launch, result: Faulted, prepared: Prepared) -> Verdict | None:
        """An access out of bounds may be the spec's fault: a guessed size, or an index array with guessed values.

        It is the kernel's own where the accepted one stays inside in the same launch.
        """
        if self._accepted_stays_inside(launch):
            return None
        indices = [
            buffer.name
            for buffer in t.bound.buffers.values()
            if buffer.spec.role is Role.IN and buffer.element.kind is Kind.INT and is_free(buffer.spec.init)
        ]
        if indices:
            zeros = {
                name: evolve(buffer, data=np.zeros_like(buffer.data))
                if name in indices and buffer.data is not None
                else buffer
                for name, buffer in t.bound.buffers.items()
            }
            tamed = evolve(t.bound, buffers=zeros)
            again = prepared.run([_like(launch, tamed)])
            if again and isinstance(again[0], Ran):
                name = indices[0]
                return Unverified(
                    f"the values of `{name}` are used as indices and their range is not known: "
                    f"write `in {name}[...]: int(0, n)` in a //dice: line"
                )
        touched = t.bound.buffers.get(result.where.split("[")[0].strip())
        guessed = touched is not None and touched.spec.origin in _GUESSED
        if not guessed:
            return None
        assert touched is not None
        where, clause = result.where.split(",")[0], f"{touched.spec.role} {touched.name}[...]"
        return Unverified(f"{where} is out of bounds of a guessed size: write `{clause}` in a //dice: line")

    def _accepted_stays_inside(self, launch: Launch) -> bool:
        if self.baseline is None:
            return False
        accepted = open_kernel(self.baseline, self.job.kernel, self.backend, launch.deadline_s, self.job.seed)
        if isinstance(accepted, BadReference):
            return False
        ran = accepted.prepared.run([launch])
        return bool(ran) and isinstance(ran[0], Ran)

    def _refusal(self, seen: "Sequence[_Seen]") -> Verdict | None:
        """The verdict of the first case that is not right; a later one of the same kind if the first says little."""
        if (refusal := self._first(policy(self, seen) for policy in _OF_ALL_RUNS)) is not None:
            return refusal
        first: Verdict | None = None
        for s in seen:
            verdict = self._compare(s)
            if verdict is None:
                continue
            tells = max(buffer.count for buffer in s.t.bound.checked) >= _TELLING_ELEMENTS
            if first is None:
                first = verdict
            elif tells and isinstance(verdict, (Wrong, Unsafe)) and _kind(verdict) == _kind(first):
                return verdict
            if tells or not isinstance(verdict, (Wrong, Unsafe)):
                return first
        return first

    def _compare(self, s: "_Seen") -> Verdict | None:
        return self._first(refusal for policy in _OF_A_CASE for refusal in policy(s))

    def all_close(self, t: _Try, buffer: BoundBuffer, outputs: Sequence[Array]) -> bool:
        """Outputs that differ from run to run are all right, or at least near to each other."""
        if t.expectation is not None:
            return all(
                self._difference(t, buffer, output, poison).agrees
                for poison, output in zip(_POISONS, outputs, strict=False)
            )
        expected = buffer.element.decode(outputs[0])
        terms = longest_sum(t.bound)
        return all(compare(o, expected, buffer.element, accumulated=terms).agrees for o in outputs[1:])

    def _difference(self, t: _Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """How an output compares with its reference, after every second opinion that may excuse it."""
        difference = self._against(t, buffer, got, 1.0, poison)
        if difference.agrees or difference.rule == "unchanged":
            return difference
        if (exact := self._exactly(t, buffer, got, poison)).agrees:
            return exact
        few = (
            4 * difference.wrong_elements <= difference.total_elements or difference.total_elements < _TELLING_ELEMENTS
        )
        converted = buffer.element.kind is not Kind.FLOAT and any(b.element.kind is Kind.FLOAT for b in t.bound.inputs)
        # A reference with floats inside gives a double no more digits than they have.
        wide = buffer.element.storage == np.float64
        if (few or converted or wide or difference.rule == "nan") and (
            single := self._in_single(t, buffer, got, poison)
        ).agrees:
            return single
        if (few or difference.rule == "nan") and (jumped := self._at_edges(t, buffer, got, poison)).agrees:
            return jumped
        if difference.rule not in ("element", "bias") or difference.max_error > MAX_SLACK:
            return difference
        # A kernel may be as far from the exact result as the accepted one, or as the reference in single precision, is.
        # Where all are off the same way, being as far off as they are must not look like a bias of its own.
        error = max(self._accepted_error(t, buffer), self._single_error(t, buffer))
        slack = (4 if difference.rule == "bias" else 2) * error
        if slack < difference.max_error:
            return difference
        excused = self._against(t, buffer, got, slack, poison)
        return self._against(t, buffer, got, 4 * error, poison) if excused.rule == "bias" else excused

    def _against(self, t: _Try, buffer: BoundBuffer, got: Array, slack: float, poison: int = 0) -> Difference:
        assert t.expectation is not None
        expected = t.expectation.values[buffer.name]
        spread = t.expectation.spread.get(buffer.name)
        untouched = t.expectation.untouched.get(buffer.name)
        if untouched is not None:
            left_alone = compare_unchanged(got, buffer.initial(poison), untouched, buffer.element)
            if not left_alone.agrees:
                return left_alone
            got, expected = got[~untouched], expected[~untouched]
            spread = None if spread is None else spread[~untouched]
        difference = compare(
            got, expected, buffer.element, spread=spread, accumulated=t.expectation.terms(buffer.name, t.bound),
            tolerance=choose(self.spec.tolerances, buffer.name), slack=slack, rounded=t.expectation.rounded,
            denormals=t.bound.distribution is Distribution.TINY,
            made_of=0.0 if expected.any() else input_size(t.bound),
        )  # fmt: skip
        if untouched is not None and not difference.agrees:
            return evolve(difference, index=int(np.flatnonzero(~untouched)[difference.index]))
        return difference

    def _relaxed(self, t: _Try, buffer: BoundBuffer, values: Array) -> _Try:
        assert t.expectation is not None
        return evolve(t, expectation=evolve(t.expectation, values={**t.expectation.values, buffer.name: values}))

    def _exactly(self, t: _Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison with the accepted kernel as it would be in double precision: a better kernel is right too."""
        assert t.expectation is not None
        if self.yardstick is None or t.bound.large or "fp64" in self.without:
            return _NO_OPINION
        if id(t) not in self.exact:
            self.exact[id(t)] = self.yardstick.exactly(t.bound)
        exact = self.exact[id(t)]
        if exact is None:
            return _NO_OPINION
        expectation = evolve(t.expectation, values=exact.values, spread=exact.spread)
        return self._against(evolve(t, expectation=expectation), buffer, got, 1.0, poison)

    def _in_single(self, t: _Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison where the reference's answer in single precision is as good as the one in double."""
        assert t.expectation is not None
        plain = self.in_single(t)
        if plain is None:
            return _NO_OPINION
        values = either(
            got, t.expectation.values[buffer.name], plain[buffer.name], buffer.element,
            accumulated=t.expectation.terms(buffer.name, t.bound), tolerance=choose(self.spec.tolerances, buffer.name),
        )  # fmt: skip
        return self._against(self._relaxed(t, buffer, values), buffer, got, 1.0, poison)

    def _at_edges(self, t: _Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison where, number by number, rounding decides which way the reference goes."""
        assert t.expectation is not None
        expected = t.expectation.values[buffer.name]
        floats = [b for b in t.bound.inputs if b.element.kind is Kind.FLOAT]
        if self.yardstick is None or not floats:
            return _NO_OPINION
        if buffer.element.kind is Kind.FLOAT and self.yardstick.defines_nan():
            return _NO_OPINION  # it chooses nothing, so it has no edges
        plain = self.in_single(t)
        if whole(t.bound) and (plain is None or np.array_equal(plain[buffer.name], expected)):
            return _NO_OPINION  # nothing was rounded: equals are equal, and a step is a step
        terms = t.expectation.terms(buffer.name, t.bound)
        if id(t) not in self.edges:
            self.edges[id(t)] = self.yardstick.at_edges(t.bound, terms)
        others = [answer[buffer.name] for answer in (*self.edges[id(t)], *([plain] if plain is not None else []))]
        if not others:
            return _NO_OPINION
        values = at_edges(
            got, expected, others, buffer.element, spread=t.expectation.spread.get(buffer.name),
            accumulated=terms, tolerance=choose(self.spec.tolerances, buffer.name),
        )  # fmt: skip
        return self._against(self._relaxed(t, buffer, values), buffer, got, 1.0, poison)

    def _accepted_error(self, t: _Try, buffer: BoundBuffer) -> float:
        """The accepted kernel's own error in units of the tolerance; 0 when there is none or it is wrong."""
        if self.baseline is None or t.expectation is None:
            return 0.0
        accepted = open_kernel(self.baseline, self.job.kernel, self.backend, self.job.run_deadline_s, self.job.seed)
        if isinstance(accepted, BadReference):
            return 0.0
        (answer,) = run_groups(accepted.prepared, [[t.launches[0]]])
        if isinstance(answer, (Faulted, NotSupported)):
            return 0.0
        error = self._against(t, buffer, answer[0].outputs[buffer.name], 1.0).max_error
        return error if error <= MAX_SLACK else 0.0

    def _single_error(self, t: _Try, buffer: BoundBuffer) -> float:
        """The reference's own error in single precision, in the same units; 0 where it has none or goes another way."""
        if (plain := self.in_single(t)) is None:
            return 0.0
        error = self._against(t, buffer, buffer.element.encode(plain[buffer.name]), 1.0).max_error
        return error if error <= 4 * MAX_SLACK else 0.0

    def undefined(self, t: _Try) -> str | None:
        """Why the reference says nothing in this case although it gives an answer; None when it says something."""
        return None if self.yardstick is None or t.bound.large else self.yardstick.undefined(t.bound)

    def right_alone(self, t: _Try, buffer: BoundBuffer) -> bool:
        """The wrong case is right when nothing ran before it: the kernel remembers what it should compute."""
        fresh = self.backend.prepare(self.source)
        if isinstance(fresh, (CompileFailed, NotSupported)):
            return False
        alone = fresh.run([t.launches[0]])
        return (
            bool(alone)
            and isinstance(alone[0], Ran)
            and self._against(t, buffer, alone[0].outputs[buffer.name], 1.0).agrees
        )

    def in_single(self, t: _Try) -> Mapping[str, Array] | None:
        """What the reference gives for a case in single precision; None where there is no such answer."""
        if self.yardstick is None:
            return None
        if id(t) not in self.plain:
            self.plain[id(t)] = self.yardstick.plain(t.bound)
        return self.plain[id(t)]

    def settled(self, t: _Try, buffer: BoundBuffer) -> bool:
        """A difference from the reference says something: with tiny values single precision may honestly lose it all."""
        if t.bound.distribution is not Distribution.TINY or buffer.element.kind is not Kind.FLOAT:
            return True
        if self.yardstick is None or not self.yardstick.scale_free(t.bound, buffer.name):
            return False
        plain = self.in_single(t)
        return plain is None or self._against(t, buffer, buffer.element.encode(plain[buffer.name]), 1.0).agrees

    def narrow_word(self) -> str | None:
        """What gives digits of a float away and is new: a word of the text, else an instruction of the device code."""
        if (word := narrow_word(self.text, self.accepted_text)) is not None:
            return word
        compiled = self.source.compiled
        if compiled is None:
            return None
        accepted = None if self.baseline is None else self.baseline.compiled
        had = frozenset[str]() if accepted is None else machine_code.narrow_instructions(accepted)
        return next(iter(sorted(machine_code.narrow_instructions(compiled) - had)), None)

    @functools.cached_property
    def accepted_text(self) -> str | None:
        """The accepted kernel's own text; None when there is none."""
        return None if self.baseline is None else own_text(self.baseline)

    def _name_checks(self, seen: "Sequence[_Seen]") -> None:
        """What a kernel whose results agree has had, by the inputs and outputs that there were."""
        drawn = {s.t.bound.distribution for s in seen}
        self.had |= {_BY_INPUTS[distribution] for distribution in drawn & set(_BY_INPUTS)}
        if drawn - {Distribution.DEFAULT, *_BY_INPUTS}:
            self.had.add("distributions")
        if self.yardstick is not None and self.yardstick.precise:
            self.had.add("fp64")
        outputs = [buffer for s in seen for buffer in s.t.bound.checked]
        floats = [buffer for buffer in outputs if buffer.element.kind is Kind.FLOAT]
        if floats:
            self.had |= {"scaling", "tensor"}
        if len(floats) < len(outputs):
            self.had.add("exact")
        expected = [s.t.expectation for s in seen if s.t.expectation is not None]
        if any(buffer.data is not None for buffer in outputs) or any(e.untouched for e in expected):
            self.had.add("restored")
        if single_interface(self.job.kernel, self.spec.template):
            self.had.add("precision")


# What the text alone says


def _keeps_interface(judge: _Judge) -> _Refusal | None:
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
        if (old.element, old.pointer) != (parameter.element, parameter.pointer):
            where = f"`{parameter.name}` is `{parameter.spelling}`, was `{old.spelling}`"
            return _Refusal("interface", Cheating("other_interface", where))
    return None


def _keeps_stream(judge: _Judge) -> _Refusal | None:
    launch = own_stream(judge.text)
    if launch is None:
        return None
    return _Refusal("stream", Cheating("own_stream", f"`{launch}` starts work that no timing of the kernel sees"))


def _keeps_launch_bounds(judge: _Judge) -> _Refusal | None:
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
            return _Refusal("launched", Unsafe("never_launched", where, case_label(dims)))
    return None


# What all runs together say


def _did_something(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    """A launch that never happened leaves every output of every case as it was, whatever it should have written."""
    judge.idle = bool(seen) and all(_untouched(s) for s in seen)
    if not judge.idle:
        return None
    telling = [s for s in seen if max(buffer.count for buffer in s.t.bound.checked) >= _TELLING_ELEMENTS]
    where = "no output is touched in any case: it was not launched, or it does nothing"
    return _Refusal("launched", Unsafe("never_launched", where, (telling or list(seen))[0].t.bound.label))


def _has_something_to_do(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    """Where every output is right before the kernel runs, that it is right afterwards says nothing."""
    expected = [(s, s.t.expectation) for s in seen if s.t.expectation is not None]
    if not expected:
        return None
    for name in (buffer.name for buffer in expected[0][0].t.bound.checked):
        if not all(_right_before(s.t.bound.buffers[name], expectation) for s, expectation in expected):
            return None
    names = ", ".join(f"`{buffer.name}`" for buffer in expected[0][0].t.bound.checked)
    reason = f"{names} is right before the kernel runs, in every case: declare other values, e.g. `: normal`"
    return _Refusal("launched", Unverified(reason, in_order(judge.had - judge.without - {"launched"})))


def _right_before(buffer: BoundBuffer, expectation: Expectation) -> bool:
    return buffer.data is not None and np.array_equal(
        buffer.element.decode(buffer.data), expectation.values[buffer.name], equal_nan=buffer.element.kind is Kind.FLOAT
    )


def _untouched(s: _Seen) -> bool:
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


def _keeps_inputs(s: _Seen) -> Iterator[_Refusal]:
    for buffer in s.t.bound.buffers.values():
        if buffer.spec.role is not Role.IN:
            continue
        for run in s.runs:
            changed = differing(run.outputs[buffer.name], buffer.initial(0))
            if changed.any():
                where = f"{buffer.name}[{int(np.argmax(changed))}] was changed"
                yield _Refusal("inputs", Unsafe("mutated_input", where, s.t.bound.label))


def _writes_all(s: _Seen) -> Iterator[_Refusal]:
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
        yield _Refusal("unwritten", Unsafe("unwritten_output", where, s.t.bound.label))


def _is_stable(s: _Seen) -> Iterator[_Refusal]:
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
                yield _Refusal("block_order" if judge.on_host else "determinism", Unverified(reason, ()))
            # Else the comparison with the reference will name the wrong one.
        elif judge.on_host:
            yield _Refusal("block_order", Unsafe("race", f"{where} depends on the order of the threads", t.bound.label))
        else:
            yield _Refusal(
                "determinism", Unsafe("non_deterministic", f"{where} changes from run to run", t.bound.label)
            )


def _by_second_run(s: _Seen, buffer: BoundBuffer, where: str) -> _Refusal | None:
    """The second run had another order, another poison and another place; some more tell which of them it was."""
    launch = s.t.launches[1]
    if not s.never(buffer, launch):
        return None
    if s.always(buffer, _like(launch, s.t.bound, poison=_POISONS[0])):
        hint = f": declare `io {buffer.name}[...]: zeros` if it is added to" if buffer.data is None else ""
        what = f"{where} depends on what it held before{hint}"
        return _Refusal("unwritten", Unsafe("uninitialized", what, s.t.bound.label))
    if s.always(buffer, evolve(launch, guard=s.t.launches[0].guard)):
        what = f"{where} depends on where the buffers lie"
        return _Refusal("addresses", Unsafe("address_dependent", what, s.t.bound.label))
    return None


def _by_third_run(s: _Seen, buffer: BoundBuffer, where: str) -> _Refusal | None:
    """Only the third run is different, which had room for fewer blocks at a time, if that is what makes the difference."""
    launch = s.t.launches[2]
    if not launch.extra_smem_bytes or not s.never(buffer, launch):
        return None
    if not s.always(buffer, evolve(launch, extra_smem_bytes=0)):
        return None
    what = f"{where} depends on how many blocks are resident"
    return _Refusal("occupancy", Unsafe("occupancy_dependent", what, s.t.bound.label))


def _agrees(s: _Seen) -> Iterator[_Refusal]:
    judge, t = s.judge, s.t
    if t.expectation is None:
        return
    for buffer in t.bound.checked:
        # Without atomics all runs have just been found equal.
        for poison, run in list(zip(_POISONS, s.runs, strict=False))[: None if judge.atomics else 1]:
            got = run.outputs[buffer.name]
            difference = judge._difference(t, buffer, got, poison)
            if difference.agrees:
                if difference.max_error > judge.max_error:
                    judge.max_error, judge.worst = difference.max_error, (t, buffer)
            elif judge.settled(t, buffer):
                yield _wrong(s, buffer, got, difference)


def _wrong(s: _Seen, buffer: BoundBuffer, got: Array, difference: Difference) -> _Refusal:
    judge, t = s.judge, s.t
    if not judge.on_host and judge.right_alone(t, buffer):
        where = f"{buffer.name} is right only in a fresh process: results are kept from earlier launches"
        return _Refusal("state", Cheating("stale_result", where))
    if (reason := judge.undefined(t)) is not None:
        return _Refusal("cases", Unverified(reason, in_order(judge.had - judge.without)))
    at = f"{buffer.name}[{difference.index}]"
    if (why := _digits_lost(s, buffer, got, difference)) is not None:
        where = f"{at} is {difference.got}, expected {difference.expected}: {why}"
        return _Refusal("precision", Unsafe("precision_dropped", where, t.bound.label))
    check = _catcher(s, buffer, got, difference)
    return _Refusal(
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


def _digits_lost(s: _Seen, buffer: BoundBuffer, got: Array, difference: Difference) -> str | None:
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


_BY_INPUTS = {
    Distribution.DEFAULT: "cases",
    Distribution.NAN: "nan",
    Distribution.INF: "inf",
    Distribution.FRESH: "seeds",
    Distribution.ENDS: "index_ranges",
}


def _catcher(s: _Seen, buffer: BoundBuffer, got: Array, difference: Difference) -> str:
    """The check that a wrong number belongs to: the one without which it would have passed."""
    drawn = s.t.bound.distribution
    by_inputs = _BY_INPUTS.get(drawn, "distributions")
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


def _agrees_within(s: _Seen, buffer: BoundBuffer, got: Array, tolerance: Tolerance) -> bool:
    assert s.t.expectation is not None
    expected, spread = s.t.expectation.values[buffer.name], s.t.expectation.spread.get(buffer.name)
    untouched = s.t.expectation.untouched.get(buffer.name)
    if untouched is not None:
        got, expected = got[~untouched], expected[~untouched]
        spread = None if spread is None else spread[~untouched]
    return compare(got, expected, buffer.element, spread=spread, tolerance=tolerance).agrees


def _only_beside(s: _Seen, buffer: BoundBuffer, got: Array) -> bool:
    """Only what the reference leaves as it was before the run is wrong."""
    assert s.t.expectation is not None
    if buffer.data is None or s.t.expectation.untouched.get(buffer.name) is not None:
        return False
    left = buffer.element.decode(buffer.data) == s.t.expectation.values[buffer.name]
    if not left.any():
        return False
    return s.judge._against(s.t, buffer, np.where(left, buffer.data, got), MAX_SLACK).agrees


def _agrees_in_single(s: _Seen, buffer: BoundBuffer, got: Array) -> bool:
    plain = s.judge.in_single(s.t)
    if plain is None or s.t.expectation is None:
        return False
    values = {**s.t.expectation.values, buffer.name: plain[buffer.name]}
    relaxed = evolve(s.t, expectation=evolve(s.t.expectation, values=values))
    return s.judge._against(relaxed, buffer, got, 1.0).agrees


# What is left to say of a kernel whose results are right


def _keeps_no_state(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    changed = dict.fromkeys(name for s in seen for run in s.runs for name in run.changed_state)
    if not changed:
        return None
    name = next(iter(changed))
    what = f"`{name}`" if name.isidentifier() else name
    reason = f"keeps state in {what} between launches"
    return _Refusal("state", Unverified(reason, in_order(judge.had - judge.without - {"state"})))


def _cannot_tell_the_time(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    compiled = judge.source.compiled
    if not reads_clock(judge.text) and not (compiled is not None and machine_code.reads_clock(compiled)):
        return None
    reason = "reads the clock, so it may do something else in the next run"
    return _Refusal("code_notes", Unverified(reason, in_order(judge.had - judge.without)))


def _keeps_its_digits(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    """Only notes: a result inside the tolerance may still be worse than it was."""
    if "precision" in judge.without or not single_interface(judge.job.kernel, judge.spec.template):
        return None
    if (word := judge.narrow_word()) is not None:
        judge.notes.append(f"computes with `{word}`, within the tolerance")
    if judge.worst is None or judge.max_error < _PRECISION_RATIO * _PRECISION_FLOOR:
        return None
    if judge.yardstick is None or not judge.yardstick.precise:
        return None
    accepted = judge._accepted_error(*judge.worst) if judge.baseline is not None else None
    if accepted is not None and judge.max_error > _PRECISION_RATIO * max(accepted, _PRECISION_FLOOR):
        ratio = judge.max_error / max(accepted, _PRECISION_FLOOR)
        judge.notes.append(f"error {ratio:.0f}x the accepted kernel's")
    return None


def _stands_any_alignment(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    """Only a note: callers who pass a pointer into the middle of a buffer should know."""
    if "alignment" in judge.without:
        return None
    width = vector_bytes(judge.text, judge.job.kernel, judge.spec.template)
    s = next((s for s in seen if max(b.count for b in s.t.bound.checked) >= _TELLING_ELEMENTS), seen[0])
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


def _reaches_far(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    """A kernel whose size has 64 bits must be right beyond 2 GB, which no reference could be computed for."""
    dim = _wide_dim(judge)
    if dim is None or "cases" in judge.without:
        return None
    for s in reversed(seen):
        bound = s.t.bound
        repeats = _HUGE_BYTES // max(buffer.count * buffer.element.itemsize for buffer in bound.buffers.values()) + 2
        if _may_be_repeated(s, repeats):
            answer = _as_repeated(s, dim, repeats)
            if answer == "right":
                judge.notes.append(f"right beyond 2 GB too: samples of {dim}={repeats * bound.dims[dim]}")
            return answer if isinstance(answer, _Refusal) else None
    return None


def _reaches_the_benchmark(judge: _Judge, seen: Sequence[_Seen]) -> _Refusal | None:
    """A size that is timed but too large for a reference is run too: a kernel could be right at all others."""
    if "cases" in judge.without or judge.atomics:
        return None
    compared = {tuple(s.t.bound.dims.items()) for s in seen}
    for dims in given_dims(judge.spec):
        if tuple(dims.items()) in compared:
            continue
        for s in reversed(seen):
            own = s.t.bound.dims
            other = [name for name, value in dims.items() if value != own[name]]
            if len(other) != 1 or dims[other[0]] % own[other[0]]:
                continue
            repeats = dims[other[0]] // own[other[0]]
            if repeats > 1 and _may_be_repeated(s, repeats):
                answer = _as_repeated(s, other[0], repeats)
                if isinstance(answer, _Refusal):
                    return answer
                break
    return None


def _may_be_repeated(s: _Seen, repeats: int) -> bool:
    """The case's buffers can be laid one behind the other so many times, in half of the device's memory at most."""
    periods = [buffer.count * buffer.element.itemsize for buffer in s.t.bound.buffers.values()]
    plain = s.t.bound.distribution is Distribution.DEFAULT and not s.t.bound.large
    return plain and not any(p % 16 for p in periods) and repeats * sum(periods) <= _memory_bytes(s.judge.backend) / 2


def _as_repeated(s: _Seen, dim: str, repeats: int) -> "_Refusal | str | None":
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
        return _Refusal("cases", Unsafe(wrong.hazard if wrong.hazard in _HAZARDS else "fault", wrong.where, label))
    if wrong:
        name, index, got, expected, count, total = wrong
        return _Refusal("cases", Wrong(name, index, got, expected, label, count, total))
    return "right"


def _run_repeated(
    s: _Seen, dim: str, repeats: int, windows: tuple[int, ...]
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
        changed = _changed(buffer, expected, results[0].outputs[buffer.name])
        if changed.any():
            at = int(np.argmax(changed))
            numbers = buffer.count * buffer.element.lanes
            index = windows[at // numbers] * numbers + at % numbers
            got, wanted = (
                str(buffer.element.decode(a[at : at + 1])[0]) for a in (results[0].outputs[buffer.name], expected)
            )
            return buffer.name, index, got, wanted, int(changed.sum()), changed.size
    return ()


def _wide_dim(judge: _Judge) -> str | None:
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
_OF_THE_TEXT: tuple[Callable[[_Judge], _Refusal | None], ...] = (_keeps_interface, _keeps_stream, _keeps_launch_bounds)
_OF_ALL_RUNS: tuple[Callable[[_Judge, Sequence[_Seen]], _Refusal | None], ...] = (_did_something, _has_something_to_do)
_OF_A_CASE: tuple[Callable[[_Seen], Iterator[_Refusal]], ...] = (_keeps_inputs, _writes_all, _is_stable, _agrees)
_OF_THE_WHOLE: tuple[Callable[[_Judge, Sequence[_Seen]], _Refusal | None], ...] = (
    _keeps_no_state, _cannot_tell_the_time, _keeps_its_digits, _stands_any_alignment, _reaches_the_benchmark, _reaches_far,
)  # fmt: skip


def _spare_smem_bytes(backend: Backend, source: Source, bound: Bound) -> int:
    """Shared memory that, on top of the kernel's own, halves how many of its blocks a multiprocessor has room for.

    Zero where that makes no difference, or where the back end does not say how much there is.
    """
    info: Any = getattr(backend, "info", None)
    compiled = source.compiled
    if info is None or compiled is None or compiled.block_threads <= 0:
        return 0
    threads = max(1, bound.block[0] * bound.block[1] * bound.block[2])
    resident = max(1, int(compiled.occupancy * _MOST_RESIDENT_THREADS / threads))
    used = compiled.smem_bytes + bound.smem_bytes
    wanted = int(info.smem_optin_bytes) // max(1, resident // 2) - used
    return wanted if resident > 1 and wanted > 0 else 0


_MOST_RESIDENT_THREADS = 2048
"""Of a multiprocessor; some have room for fewer, where the request is then a little too small to matter."""


def _kind(verdict: Verdict) -> tuple[str, str]:
    return type(verdict).__name__, verdict.hazard if isinstance(verdict, Unsafe) else ""


def _same_kernel(source: Source, baseline: Source) -> bool:
    """The accepted text is the judged one: a kernel is no reference for itself."""
    return without_comments(source.device_text) == without_comments(baseline.device_text) and (
        source.kernel.qualified_name == baseline.kernel.qualified_name
    )


def _first_error(failed: CompileFailed) -> str:
    messages = failed.errors or failed.messages
    return f"line {messages[0].line + 1}: {messages[0].text}" if messages else "it gives no message"


def _like(launch: Launch, bound: Bound, poison: int = 0) -> Launch:
    return bound.launch(
        poison=poison, order=launch.order, guard=launch.guard, seed=launch.seed, deadline_s=launch.deadline_s
    )


def _changed(buffer: BoundBuffer, a: Array, b: Array) -> Array:
    """Numbers whose bits differ; one NaN is as good as another."""
    if same_bits(a, b):
        return np.zeros(a.size, bool)
    changed = differing(a, b)
    if buffer.element.kind is Kind.FLOAT:
        changed &= ~(np.isnan(buffer.element.decode(a)) & np.isnan(buffer.element.decode(b)))
    return changed


def _defined(bound: Bound, expectation: Expectation, yardstick: Yardstick) -> bool:
    """The reference says something about these inputs that every honest kernel must agree with."""
    if bound.distribution is Distribution.FRESH:
        return True
    if bound.distribution is Distribution.TINY and not yardstick.precise:
        return False  # what a reference in single precision loses, a better kernel keeps
    checked = {buffer.name: buffer for buffer in bound.checked}
    floats = [name for name, buffer in checked.items() if buffer.element.kind is Kind.FLOAT]
    finite = {name: np.isfinite(checked[name].element.round(expectation.values[name])) for name in floats}
    if bound.distribution not in (Distribution.NAN, Distribution.INF):
        narrow = any(buffer.element.itemsize == 2 * buffer.element.lanes for buffer in bound.buffers.values())
        if bound.distribution is Distribution.LARGE and narrow:
            return False  # sums of large halves overflow or not by the order of the additions
        return all(mask.all() for mask in finite.values())
    defined = yardstick.defines_nan() if bound.distribution is Distribution.NAN else yardstick.defines_inf()
    if not defined or not bound.special:
        return False
    # Only elementwise work: what is not sprinkled must come out finite.
    for name in floats:
        marked = np.zeros(finite[name].size, bool)
        for indices in bound.special.values():
            if indices.size and int(indices.max()) >= marked.size:
                return False
            marked[indices] = True
        if not (finite[name] | marked).all():
            return False
    return True
