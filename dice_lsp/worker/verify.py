"""Is a kernel safe, and are its results right? Runs it on a back end and answers with one `Verdict`.

A verdict comes from outside the kernel: expected values stay in this process, outputs are poisoned twice with
different patterns, inputs are compared with what they were, guards stand on both sides of every buffer, and on the host
the threads and blocks run in three orders. All runs of all cases go to the back end in one call, smallest case first.
"""

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from attrs import evolve, frozen

from dice_lsp.records import (
    Cheating,
    CompileFailed,
    JudgeJob,
    Origin,
    Reference,
    Role,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.source.tokens import without_comments
from dice_lsp.worker.arguments import BadSpec, Bound, BoundBuffer, Distribution, bind, is_free
from dice_lsp.worker.cases import DEVICE_BUDGET, HOST_BUDGET, choose_cases, estimated_work
from dice_lsp.worker.elements import Array, Kind, element_of
from dice_lsp.worker.launch import (
    Backend,
    BlockOrder,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Prepared,
    Ran,
    RunResult,
    Source,
)
from dice_lsp.worker.reference import (
    BadReference,
    Expectation,
    Yardstick,
    open_kernel,
    open_reference,
    poison_left,
    run_groups,
)
from dice_lsp.worker.tolerance import (
    MAX_SLACK,
    Difference,
    choose,
    compare,
    compare_unchanged,
    differing,
    either,
    same_bits,
)

CHECKS = MappingProxyType(
    {
        "bounds": "guards on both sides of every buffer, one side at a time",
        "unwritten": "outputs poisoned twice with different patterns, every element written",
        "inputs": "inputs hold the same bytes after the run",
        "block_order": "the same results with threads and blocks in ascending, descending and random order",
        "determinism": "the same results when run again",
        "cases": "every size agrees with the reference",
        "distributions": "large, negative, equal, integer and zero inputs agree with the reference",
        "nan": "NaN goes through where the reference lets it",
        "inf": "infinities go through where the reference lets them",
    }
)
"""Every check a verdict may name, and what it did."""

_HAZARDS = frozenset(
    "out_of_bounds unwritten_output mutated_input race divergent_barrier deadlock timeout fault shared_memory "
    "non_deterministic uninitialized".split()
)
_TELLING_ELEMENTS = 16
"""`none of 1 elements is written` says less than `1 of 1000`: a case this large is reported if it fails alike."""
_PROBE_ELEMENTS = 20_000
"""Other distributions are tried at the largest case with at most this many elements."""
_GUESSED = (Origin.INFERRED, Origin.DEFAULT)
_POISONS = (0, 1, 0)
"""Poison pattern of the runs of a case."""
_LEAST_DEADLINE_S = 2.0
_DEADLINE_S_PER_STEP = 2e-6
_CLOCK = re.compile(r"\b(?:clock|clock64|__globaltimer)\s*\(|%(?:clock|globaltimer)")
_ATOMICS = re.compile(r"\batomic\w*|\bred\.|__nv_atomic")

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
    """
    return _Judge(
        job, source, backend, host, check_cancelled, on_progress or (lambda words: None), baseline_source
    ).verdict()


@frozen(eq=False)
class _Try:
    """One case with one set of inputs, and the launches it is run with."""

    bound: Bound
    given: bool
    launches: tuple[Launch, ...]
    expectation: Expectation | None = None


class _Judge:
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
        self.on_host = backend.kind == "host"
        self.checks = ["bounds", "unwritten", "inputs", "block_order" if self.on_host else "determinism"]
        # A word in a comment must not excuse different results.
        self.atomics = _ATOMICS.search(without_comments(source.device_text)) is not None

    def verdict(self) -> Verdict:
        if self.spec.skip:
            return Unverified("skipped: its //dice: line says so")
        if not self.spec.launchable:
            return Unverified(self.spec.unknown[0] if self.spec.unknown else "the launch is not known")
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
        results = prepared.run([launch for t in tries for launch in t.launches])
        self.check_cancelled()
        fault = self._fault(tries, results, prepared)
        if fault is not None:
            return fault
        refusal = self._refusal(tries, results, prepared)
        if refusal is not None:
            return refusal
        if problem is not None:
            return Unverified(problem.reason, tuple(self.checks))
        if self.on_host and (state := kept_state(self.source.device_text)) is not None:
            # Every run of the host begins with fresh device variables, so a result kept from an earlier launch is not seen.
            return Unverified(
                f"keeps state in `{state}` between launches, which is not tried on the host", tuple(self.checks)
            )
        if _CLOCK.search(without_comments(self.source.device_text)):
            return Unverified("reads the clock, so it may do something else in the next run", tuple(self.checks))
        self._name_checks(tries)
        sizes = sum(1 for t in tries if t.bound.distribution is Distribution.DEFAULT)
        return Verified(sizes, self.max_error, self.backend.name, words, tuple(self.checks))

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
        small = [n for n, case in enumerate(cases) if case.plan.elements <= _PROBE_ELEMENTS and n < len(tries)]
        probe = cases[small[-1] if small else 0]
        for distribution in Distribution:
            if distribution is Distribution.DEFAULT or not self._varies(distribution):
                continue
            seed = self.job.seed + 1000 + len(tries)
            bound = bind(self.spec, self.job.kernel, probe.dims, seed, distribution, folder=self.folder)
            if isinstance(bound, Bound):
                tries.append(_Try(bound, False, self._launches(bound, estimated_work(probe.plan), all_orders=False)))
        return tries

    def _varies(self, distribution: Distribution) -> bool:
        """Some input is drawn differently under this distribution, and what then comes out is defined."""
        elements = {p.name: self._kind(p.name) for p in self.job.kernel.parameters if p.pointer}
        inputs = [b for b in self.spec.buffers if b.role in (Role.IN, Role.IO) and is_free(b.init)]
        floats = [b for b in inputs if elements.get(b.name) is Kind.FLOAT]
        integer_results = any(
            b.role in (Role.OUT, Role.IO) and elements.get(b.name) is not Kind.FLOAT for b in self.spec.buffers
        )
        if distribution is Distribution.EQUAL and not floats:
            return any(b.role is Role.IN and (is_free(b.init) or b.init.startswith("int")) for b in self.spec.buffers)
        if distribution is Distribution.LARGE and any(elements.get(b.name) is Kind.INT for b in inputs):
            return True
        # Equal floats have no first greatest one that every honest argmax would agree on.
        return bool(floats) and not (integer_results and distribution is not Distribution.LARGE)

    def _kind(self, name: str) -> Kind | None:
        parameter = next(p for p in self.job.kernel.parameters if p.name == name)
        element = element_of(self.spec.template.get(parameter.element, parameter.element))
        return None if element is None else element.kind

    def _launches(self, bound: Bound, steps: int, all_orders: bool) -> tuple[Launch, ...]:
        allowed = max(_LEAST_DEADLINE_S, steps * _DEADLINE_S_PER_STEP)
        launch = functools.partial(bound.launch, seed=self.job.seed, deadline_s=min(self.job.run_deadline_s, allowed))
        runs = [
            launch(poison=_POISONS[0], order=BlockOrder.ASCENDING, guard=Guard.RIGHT),
            launch(poison=_POISONS[1], order=BlockOrder.DESCENDING, guard=Guard.LEFT),
        ]
        if all_orders:
            runs.append(launch(poison=_POISONS[2], order=BlockOrder.RANDOM, guard=Guard.RIGHT))
        return tuple(runs)

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

    def _fault(self, tries: Sequence[_Try], results: Sequence[RunResult], prepared: Prepared) -> Verdict | None:
        launches = [(t, launch) for t in tries for launch in t.launches]
        bad = next((n for n, result in enumerate(results) if not isinstance(result, Ran)), None)
        if bad is None:
            if len(results) < len(launches):
                return Unverified("the back end ended before all cases were run")
            return None
        result = results[bad]
        t, launch = launches[bad]
        if isinstance(result, NotSupported):
            return Unverified(result.reason)
        assert isinstance(result, Faulted)
        hazard = {"mutated": "mutated_input"}.get(result.hazard, result.hazard)
        if hazard == "mutated_input":
            return self._mutated(result.where, t)
        if hazard == "out_of_bounds" and (doubt := self._doubtful(t, launch, result, prepared)) is not None:
            return doubt
        return Unsafe(hazard if hazard in _HAZARDS else "fault", result.where, t.bound.label)

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
        """An access out of bounds may be the spec's fault: a guessed size, or an index array with guessed values."""
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
        if self.baseline is not None:
            accepted = open_kernel(self.baseline, self.job.kernel, self.backend, launch.deadline_s, self.job.seed)
            if not isinstance(accepted, BadReference):
                again = accepted.prepared.run([launch])
                if again and isinstance(again[0], Ran):
                    return None
        assert touched is not None
        where, clause = result.where.split(",")[0], f"{touched.spec.role} {touched.name}[...]"
        return Unverified(f"{where} is out of bounds of a guessed size: write `{clause}` in a //dice: line")

    def _refusal(self, tries: Sequence[_Try], results: Sequence[RunResult], prepared: Prepared) -> Verdict | None:
        """The verdict of the first case that is not right; a later one of the same kind if the first says little."""
        first: Verdict | None = None
        at = 0
        for t in tries:
            runs = [result for result in results[at : at + len(t.launches)] if isinstance(result, Ran)]
            at += len(t.launches)
            verdict = self._compare(t, runs, prepared)
            if verdict is None:
                continue
            tells = max(buffer.count for buffer in t.bound.checked) >= _TELLING_ELEMENTS
            if first is None:
                first = verdict
            elif tells and isinstance(verdict, (Wrong, Unsafe)) and _kind(verdict) == _kind(first):
                return verdict
            if tells or not isinstance(verdict, (Wrong, Unsafe)):
                return first
        return first

    def _compare(self, t: _Try, runs: Sequence[Ran], prepared: Prepared) -> Verdict | None:
        for buffer in t.bound.buffers.values():
            if buffer.spec.role is Role.IN:
                for run in runs:
                    changed = differing(run.outputs[buffer.name], buffer.initial(0))
                    if changed.any():
                        return Unsafe(
                            "mutated_input", f"{buffer.name}[{int(np.argmax(changed))}] was changed", t.bound.label
                        )
        for buffer in t.bound.checked:
            unwritten = self._unwritten(t, buffer, runs)
            if unwritten is not None:
                return unwritten
        for buffer in t.bound.checked:
            unstable = self._unstable(t, buffer, runs, prepared)
            if unstable is not None:
                return unstable
        if t.expectation is None:
            return None
        for buffer in t.bound.checked:
            # Without atomics all runs have just been found equal.
            for poison, run in list(zip(_POISONS, runs, strict=False))[: None if self.atomics else 1]:
                difference = self._difference(t, buffer, run.outputs[buffer.name], poison)
                if not difference.agrees:
                    return self._wrong(t, buffer, difference)
                self.max_error = max(self.max_error, difference.max_error)
        return None

    def _unwritten(self, t: _Try, buffer: BoundBuffer, runs: Sequence[Ran]) -> Verdict | None:
        if buffer.data is not None:
            return None
        left = poison_left(runs[0].outputs[buffer.name], runs[1].outputs[buffer.name])
        if t.expectation is not None and (allowed := t.expectation.untouched.get(buffer.name)) is not None:
            left &= ~allowed
        if not left.any():
            return None
        count = int(left.sum())
        if count == left.size:
            where = f"{buffer.name}: none of {left.size} elements is written"
        else:
            where = f"{buffer.name}: {count} of {left.size} elements, first {buffer.name}[{int(np.argmax(left))}]"
        return Unsafe("unwritten_output", where, t.bound.label)

    def _unstable(self, t: _Try, buffer: BoundBuffer, runs: Sequence[Ran], prepared: Prepared) -> Verdict | None:
        """Results that differ from run to run: by the order of threads, by chance, or by what the output held before."""
        outputs = [run.outputs[buffer.name] for run in runs]
        first = outputs[0]
        poisoned = buffer.data is None
        kept = poison_left(outputs[0], outputs[1]) if poisoned else np.zeros(first.size, bool)
        changed = _changed(buffer, first, outputs[1]) & ~kept
        reordered = _changed(buffer, first, outputs[2]) if len(outputs) > 2 else np.zeros(first.size, bool)
        if not changed.any() and not reordered.any():
            return None
        if self.atomics and self._all_close(t, buffer, outputs):
            return None
        index = int(np.argmax(changed | reordered))
        if changed.any() and not reordered.any():
            # The second run had another order and another poison; one more run tells which of them it was.
            launch = t.launches[1]
            again = prepared.run([_like(launch, t.bound, poison=0)])
            if again and isinstance(again[0], Ran) and not _changed(buffer, first, again[0].outputs[buffer.name]).any():
                hint = f": declare `io {buffer.name}[...]: zeros` if it is added to" if poisoned else ""
                return Unsafe(
                    "uninitialized", f"{buffer.name}[{index}] depends on what it held before{hint}", t.bound.label
                )
        if self.atomics:
            if t.expectation is None:
                return Unverified("the results depend on the order of atomic operations, and there is no reference", ())
            return None  # the comparison with the reference will name the wrong one
        if self.on_host:
            return Unsafe("race", f"{buffer.name}[{index}] depends on the order of the threads", t.bound.label)
        return Unsafe("non_deterministic", f"{buffer.name}[{index}] changes from run to run", t.bound.label)

    def _all_close(self, t: _Try, buffer: BoundBuffer, outputs: Sequence[Array]) -> bool:
        if t.expectation is not None:
            return all(
                self._difference(t, buffer, output, poison).agrees
                for poison, output in zip(_POISONS, outputs, strict=False)
            )
        expected = buffer.element.decode(outputs[0])
        terms = _terms(t.bound)
        return all(compare(o, expected, buffer.element, accumulated=terms).agrees for o in outputs[1:])

    def _difference(self, t: _Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        difference = self._against(t, buffer, got, 1.0, poison)
        if difference.agrees or difference.rule == "unchanged":
            return difference
        few = 4 * difference.wrong_elements <= difference.total_elements
        converted = buffer.element.kind is not Kind.FLOAT and any(b.element.kind is Kind.FLOAT for b in t.bound.inputs)
        # A reference with floats inside gives a double no more digits than they have.
        wide = buffer.element.storage == np.float64
        if (few or converted or wide or difference.rule == "nan") and (
            single := self._in_single(t, buffer, got, poison)
        ).agrees:
            return single
        if difference.rule not in ("element", "bias") or difference.max_error > MAX_SLACK:
            return difference
        # A kernel may be as far from the exact result as the accepted one is; that is only worth a run when it matters.
        slack = 2 * self._accepted_error(t, buffer)
        return self._against(t, buffer, got, max(slack, 1.001), poison) if slack >= difference.max_error else difference

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
        tolerance = choose(self.spec.tolerances, buffer.name)
        difference = compare(
            got, expected, buffer.element, spread=spread, accumulated=_terms(t.bound), tolerance=tolerance, slack=slack
        )
        if untouched is not None and not difference.agrees:
            return evolve(difference, index=int(np.flatnonzero(~untouched)[difference.index]))
        return difference

    def _in_single(self, t: _Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison where the reference's answer in single precision is as good as the one in double."""
        assert t.expectation is not None
        nothing = Difference(np.inf, 1, 1, 0)
        if self.yardstick is None or t.bound.large:
            return nothing
        key = id(t)
        if key not in self.plain:
            self.plain[key] = self.yardstick.plain(t.bound)
        plain = self.plain[key]
        if plain is None:
            return nothing
        values = either(
            got, t.expectation.values[buffer.name], plain[buffer.name], buffer.element,
            accumulated=_terms(t.bound), tolerance=choose(self.spec.tolerances, buffer.name),
        )  # fmt: skip
        relaxed = evolve(t, expectation=evolve(t.expectation, values={**t.expectation.values, buffer.name: values}))
        return self._against(relaxed, buffer, got, 1.0, poison)

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

    def _wrong(self, t: _Try, buffer: BoundBuffer, difference: Difference) -> Verdict:
        if not self.on_host and self._right_alone(t, buffer):
            return Cheating(
                "stale_result",
                f"{buffer.name} is right only in a fresh process: results are kept from earlier launches",
            )
        case = t.bound.label
        if difference.rule == "bias":
            case += ", every element is off the same way"
        return Wrong(
            buffer.name, difference.index, difference.got, difference.expected, case,
            difference.wrong_elements, difference.total_elements,
        )  # fmt: skip

    def _right_alone(self, t: _Try, buffer: BoundBuffer) -> bool:
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

    def _name_checks(self, tries: Sequence[_Try]) -> None:
        seen = {t.bound.distribution for t in tries}
        self.checks.append("cases")
        if seen - {Distribution.DEFAULT, Distribution.NAN, Distribution.INF}:
            self.checks.append("distributions")
        if Distribution.NAN in seen:
            self.checks.append("nan")
        if Distribution.INF in seen:
            self.checks.append("inf")


_DEVICE_VARIABLE = re.compile(
    r"__(?:device|managed)__\s+(?P<type>[^;(){}=]*?)\b(?P<name>\w+)\s*(?:\[[^;{}]*\]\s*)?(?:=|;|\{)"
)


def kept_state(device_text: str) -> str | None:
    """The first device variable that device code writes or may write: what it holds outlives a launch.

    A write through a pointer or a reference cannot be followed, so a variable whose address is taken counts as written.
    """
    text = without_comments(device_text)
    for match in _DEVICE_VARIABLE.finditer(text):
        if re.search(r"\b(const|constexpr|__constant__)\b", match["type"]):
            continue
        name = rf"(?<![\w.>]){re.escape(match['name'])}\b"
        rest = text[: match.start()] + text[match.end() :]
        element = rf"{name}[\s)]*(?:\[[^\]]*\]\s*|\.\w+\s*|\)\s*)*"
        patterns = [
            rf"{element}(?:[-+*/%&|^]?=(?!=)|<<=|>>=|\+\+|--)",
            rf"(?:\+\+|--)[\s(]*{name}",
            rf"(?:[(,=?:{{]|\breturn\b)\s*&[\s(]*{name}",  # its address
            rf"&\s*\w+\s*[=({{][\s(]*{name}",  # a reference to it
            rf"\batomic\w*\s*\([\s(]*{name}",
        ]
        if "[" in match.group():
            # Without a subscript an array is a pointer, which is an address like any other.
            patterns.append(rf"(?<!sizeof\()(?<!sizeof ){name}(?!\s*\[)")
        if any(re.search(pattern, rest) for pattern in patterns):
            return match["name"]
    return None


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


def _terms(bound: Bound) -> float:
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


def _defined(bound: Bound, expectation: Expectation, yardstick: Yardstick) -> bool:
    """The reference says something about these inputs that every honest kernel must agree with."""
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
