"""Is a kernel safe, and are its results right? Runs it on a back end and answers with one `Verdict`.

A verdict comes from outside the kernel: expected values stay in this process, outputs are poisoned twice with
different patterns, inputs are compared with what they were, guards stand on both sides of every buffer, and on the host
the threads and blocks run in three orders. All runs of all cases go to the back end in one call, smallest case first.

What came out is judged by `worker.policies`, one small function each, in the order in which a person would want to know.
A refusal is not made when the check that it belongs to is switched off.
"""

import functools
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from dice_lsp.records import (
    CompileFailed,
    Confidence,
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
from dice_lsp.worker import machine_code
from dice_lsp.worker.arguments import (
    BadSpec,
    Bound,
    BoundBuffer,
    Distribution,
    bind,
    buffer_elements,
    declares_range,
    is_free,
)
from dice_lsp.worker.cases import (
    DEVICE_BUDGET,
    HOST_BUDGET,
    Budget,
    Case,
    choose_cases,
    estimated_work,
    other_launches,
    same_template,
    undivided,
)
from dice_lsp.worker.checks import check_of, in_order
from dice_lsp.worker.code_notes import (
    code_notes,
    has_atomics,
    narrow_word,
    own_text,
    single_interface,
)
from dice_lsp.worker.elements import Array, Element, Kind
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
from dice_lsp.worker.policies import (
    BY_INPUTS,
    HAZARDS,
    OF_A_CASE,
    OF_ALL_RUNS,
    OF_THE_TEXT,
    OF_THE_WHOLE,
    POISONS,
    TELLING_ELEMENTS,
    Refusal,
    Seen,
    Try,
    like,
)
from dice_lsp.worker.recorded import RecordedCase, bind_recorded, is_only_recorded, near, own_label
from dice_lsp.worker.reference import (
    BadReference,
    Expectation,
    KernelYardstick,
    Yardstick,
    input_size,
    longest_sum,
    open_kernel,
    open_reference,
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
)

_FRESH_PROCESSES = 3
_NEVER_LAUNCHED = ("launch refused", "the launch is invalid")
"""How the back ends begin to say that a kernel was not even started."""
_PROBE_ELEMENTS = 20_000
"""Other distributions are tried at the largest case with at most this many elements."""
_GUESSED = (Origin.INFERRED, Origin.DEFAULT)
_LEAST_DEADLINE_S = 2.0
_DEADLINE_S_PER_STEP = 2e-6

_MOST_NEAR = 2
"""How many recorded launches are run with other numbers than the recorded ones."""
_ANY_STEPS = 1 << 62
"""Nothing tells how long a recorded launch takes: it has all the time that is allowed."""
_EMULATED_THREADS = 1 << 20
"""Most of a recorded launch that is emulated."""
_RECORDED_BYTES = 256 << 20
"""Memory of all recorded launches that are tried: what is expected and what comes out takes several times as much."""

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
    notes: Sequence[str] = (),
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
        notes: what there is to say of the launch already, a sentence each.
        without: names of checks that do not refuse, for tests of the checks themselves.
    """
    judge = Judge(job, source, backend, host, check_cancelled, on_progress or (lambda words: None), baseline_source)
    judge.without = frozenset(in_order(without))
    judge.notes += notes
    return judge.verdict()


class Judge:
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
        self.worst: tuple[Try, BoundBuffer] | None = None

    def verdict(self) -> Verdict:
        if self.spec.skip:
            return Unverified("skipped: its //dice: line says so")
        if not self.spec.launchable:
            return Unverified(self.spec.unknown[0] if self.spec.unknown else "the launch is not known")
        if (refusal := self._first(policy(self) for policy in OF_THE_TEXT)) is not None:
            return refusal
        self.check_cancelled()
        prepared = self.backend.prepare(self.source)
        if isinstance(prepared, NotSupported):
            return Unverified(prepared.reason)
        if isinstance(prepared, CompileFailed):
            return Unverified(f"{prepared.compiler} does not take it: {_first_error(prepared)}")
        tries = self._tries()
        recorded = self._recorded()
        if isinstance(tries, BadSpec):
            if not recorded:
                return Unverified(tries.reason)
            self.notes.append(f"only recorded launches were run: {tries.reason}")
            self.had.discard("unwritten")
            tries = []
        told = [t for t in recorded if t.expectation is not None]
        tries = [*tries, *(t for t in recorded if t.expectation is None), *self._near(recorded)]
        if not tries and not told:
            return Unverified(self.notes[0] if self.notes else "no case of this kernel can be launched")
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
            if told and tries:
                why = (
                    f": {problem.reason}"
                    if self.spec.reference is not None and problem.reason not in self.notes
                    else ""
                )
                self.notes.append(f"other sizes than the recorded ones were run without a reference{why}")
        if told:
            left = f"what the program left in {_listed([t.bound.label for t in told])}"
            words, problem = f"{words}; {left}" if words else left, None
            tries = [*tries, *told]
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
        if (refusal := self._first(policy(self, seen) for policy in OF_THE_WHOLE)) is not None:
            return refusal
        sizes = sum(1 for s in seen if s.t.bound.distribution is Distribution.DEFAULT)
        checks = in_order(self.had - self.without)
        return Verified(sizes, self.max_error, self.backend.name, words, checks, self._all_notes(seen))

    def _first(self, refusals: "Iterator[Refusal | None]") -> Verdict | None:
        """The first refusal that is not switched off."""
        for refusal in refusals:
            if refusal is not None and refusal.check not in self.without:
                return refusal.verdict
        return None

    def _all_notes(self, seen: "Sequence[Seen]") -> tuple[str, ...]:
        notes = [] if "code_notes" in self.without else [*code_notes(self.text, self.source.compiled)]
        raced = [note for s in seen for run in s.runs for note in run.notes if note.endswith(READ_UNORDERED)]
        return tuple(dict.fromkeys([*self.notes, *raced, *notes]))

    # What is run

    def _tries(self) -> "list[Try] | BadSpec":
        budget = HOST_BUDGET if self.on_host else DEVICE_BUDGET
        if is_only_recorded(self.spec):
            self.had.discard("unwritten")
            return []
        cases = choose_cases(self.spec, self.job.kernel, budget)
        if isinstance(cases, BadSpec):
            return cases
        tries: list[Try] = []
        for number, case in enumerate(cases):
            bound = bind(self.spec, self.job.kernel, case.dims, self.job.seed + number, folder=self.folder)
            if isinstance(bound, BadSpec):
                if case.given:
                    return bound
                continue
            steps = estimated_work(case.plan)
            tries.append(Try(bound, case.given, self._launches(bound, steps, all_orders=not bound.large)))
        if not tries:
            return BadSpec("no case of this kernel can be launched")
        self.notes += undivided(self.spec, self.job.kernel)
        tries += self._other_launches(budget)
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

    def _other_launches(self, budget: Budget) -> list[Try]:
        """The kernel's other launches in the program, each as it stands there."""
        cases, left_out = other_launches(self.spec, self.job.kernel, budget)
        self.notes += left_out
        tries = []
        for number, case in enumerate(cases):
            assert case.spec is not None
            bound = bind(case.spec, self.job.kernel, case.dims, self.job.seed + 500 + number, folder=self.folder)
            if isinstance(bound, BadSpec):
                self.notes.append(f"{case.spec.label} is not tried: {bound.reason}")
                continue
            steps = estimated_work(case.plan)
            tries.append(Try(bound, True, self._launches(bound, steps, all_orders=not bound.large)))
        return tries

    def _recorded(self) -> list[Try]:
        """The recorded launches of this instantiation.

        What was recorded with this very text, or is named as the reference, tells what must come out.
        """
        named = self.spec.reference is not None and self.spec.reference.via == "captured"
        launches = {
            case.captured: case.label for case in self.spec.cases if case.captured and same_template(case, self.spec)
        }
        if self.spec.captured is not None:
            launches.setdefault(self.spec.captured, own_label(self.spec))
        tries: list[Try] = []
        room = _RECORDED_BYTES
        for launch, label in launches.items():
            case = bind_recorded(launch, label, self.spec, self.job.kernel, self.source.compiled, room)
            if isinstance(case, BadSpec):
                self.notes.append(case.reason)
                continue
            bound = case.bound
            room -= bound.bytes
            if self.on_host and math.prod((*bound.grid, *bound.block)) > _EMULATED_THREADS:
                self.notes.append(f"{label} has too many threads to be emulated")
                continue
            runs = self._launches(bound, _ANY_STEPS, all_orders=not bound.large)
            expectation = _recorded_expectation(case) if named or not case.stale else None
            tries.append(Try(bound, False, runs, expectation, repeats=not case.stale))
            if case.stale:
                self.notes.append(f"{label} was recorded with another text of the kernel")
        return tries

    def _near(self, recorded: Sequence[Try]) -> list[Try]:
        """Recorded launches with other numbers, where a reference may tell what then comes out.

        What was recorded can be learned by heart.
        """
        if self.baseline is None and (self.spec.reference is None or self.spec.reference.via == "captured"):
            return []
        tries = []
        for t in recorded[:_MOST_NEAR]:
            bound = evolve(near(t.bound, secrets.randbits(48), 0.5), distribution=Distribution.FRESH)
            tries.append(Try(bound, False, self._launches(bound, _ANY_STEPS, all_orders=False)))
        return tries

    def _drawn(self, case: Case, seed: int, distribution: Distribution) -> list[Try]:
        bound = bind(self.spec, self.job.kernel, case.dims, seed, distribution, folder=self.folder)
        if isinstance(bound, BadSpec):
            return []
        return [Try(bound, False, self._launches(bound, estimated_work(case.plan), all_orders=False))]

    def _varies(self, distribution: Distribution) -> bool:
        """Some input is drawn differently under this distribution, and what then comes out is defined."""
        elements = {b.name: self._kind(b.name) for b in self.spec.buffers}
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
        return buffer_elements(self.spec, self.job.kernel).get(name)

    def _launches(self, bound: Bound, steps: int, all_orders: bool) -> tuple[Launch, ...]:
        allowed = max(_LEAST_DEADLINE_S, steps * _DEADLINE_S_PER_STEP)
        launch = functools.partial(bound.launch, seed=self.job.seed, deadline_s=min(self.job.run_deadline_s, allowed))
        runs = [
            launch(poison=POISONS[0], order=BlockOrder.ASCENDING, guard=Guard.RIGHT),
            launch(poison=POISONS[1], order=BlockOrder.DESCENDING, guard=Guard.LEFT),
        ]
        if all_orders:
            extra = _spare_smem_bytes(self.backend, self.source, bound)
            if extra:
                self.had.add("occupancy")
            runs.append(launch(poison=POISONS[2], order=BlockOrder.RANDOM, guard=Guard.RIGHT, extra_smem_bytes=extra))
        return tuple(runs)

    def _run(self, tries: Sequence[Try], prepared: Prepared) -> "list[Seen] | Verdict":
        """Run all launches in one call; the verdict when one of them fails.

        A case that fails a check which is switched off is left out, and the others go on.
        """
        seen: list[Seen] = []
        waiting = list(tries)
        while waiting:
            results = prepared.run([launch for t in waiting for launch in t.launches])
            at = 0
            for number, t in enumerate(waiting):
                runs = results[at : at + len(t.launches)]
                at += len(t.launches)
                bad = next((n for n, result in enumerate(runs) if not isinstance(result, Ran)), None)
                if bad is None and len(runs) == len(t.launches):
                    seen.append(Seen(self, t, tuple(run for run in runs if isinstance(run, Ran)), prepared))
                    continue
                if bad is None:
                    return Unverified("the back end ended before all cases were run")
                result = runs[bad]
                if isinstance(result, NotSupported):
                    return Unverified(result.reason)
                assert isinstance(result, Faulted)
                if t.bound.recorded and self.on_host and result.hazard == "timeout":
                    self.notes.append(f"{t.bound.label} takes too long to be emulated")
                    waiting = waiting[number + 1 :]
                    break
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
        if named is None or named.via == "captured":
            return (accepted,)
        return (named,) if named.origin is Origin.DIRECTIVE or self.baseline is None else (named, accepted)

    def _expected(self, tries: "Sequence[Try]", reference: Reference) -> "tuple[str, list[Try]] | BadReference":
        """The reference in words, and the tries it can do with their expectations."""
        if reference.via == "kernel" and self.baseline is None:
            if any(t.bound.recorded for t in tries):
                return BadReference(
                    "no reference: its launches were recorded with another text of the kernel, "
                    "write `ref captured` in a //dice: line to compare with what they left"
                )
            named = self.spec.reference is not None and self.spec.reference.via == "captured"
            return BadReference(
                self.notes[0] if named and self.notes else "no reference: name one with `ref` in a //dice: line"
            )
        if not tries:
            return BadReference("no reference is needed beside what the program left")
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
        if not isinstance(yardstick, KernelYardstick):
            # A function and an expression are asked by the names of whole buffers, which recorded memory need not have.
            left_out = [t for t in tries if t.bound.recorded and not _plainly_named(t.bound)]
            self.notes += [f"{t.bound.label} is not compared: its buffers overlap" for t in left_out]
            tries = [t for t in tries if t not in left_out]
        answers = yardstick.expect([t.bound for t in tries])
        kept: list[Try] = []
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
        bad = next((answer for answer in answers if isinstance(answer, BadReference)), None)
        if bad is not None and not any(t.bound.distribution is Distribution.DEFAULT for t in kept):
            return bad
        self.yardstick = yardstick
        return yardstick.words, kept

    # What came out

    def _fault(self, t: Try, number: int, result: Faulted, prepared: Prepared) -> Refusal:
        """What a launch that did not end as it should says against the kernel."""
        launch = t.launches[number]
        hazard = {"mutated": "mutated_input"}.get(result.hazard, result.hazard)
        hazard = hazard if hazard in HAZARDS else "fault"
        if hazard == "fault" and result.where.startswith(_NEVER_LAUNCHED):
            hazard = "never_launched"
        check = check_of(hazard)
        if hazard == "mutated_input":
            return Refusal(check, self._mutated(result.where, t))
        if hazard == "out_of_bounds" and (doubt := self._doubtful(t, launch, result, prepared)) is not None:
            return Refusal(check, doubt)
        if hazard == "timeout" and launch.extra_smem_bytes:
            where = f"{result.where} when fewer blocks are resident, as on a smaller device"
            return Refusal("occupancy", Unsafe("occupancy_dependent", where, t.bound.label))
        if hazard in ("fault", "never_launched") and launch.extra_smem_bytes:
            return Refusal("occupancy", Unverified(f"does not run with fewer blocks resident: {result.where}"))
        return Refusal(check, Unsafe(hazard, result.where, t.bound.label))

    def _mutated(self, where: str, t: Try) -> Verdict:
        name = where.split("[")[0].strip()
        parameter = next((p for p in self.job.kernel.parameters if p.name == name), None)
        buffer = t.bound.buffers.get(name)
        if parameter is not None and not parameter.const and buffer is not None and buffer.spec.origin in _GUESSED:
            return Unverified(
                f"`{name}` was taken for an input, but is written: write `out {name}[...]` in a //dice: line"
            )
        return Unsafe("mutated_input", where, t.bound.label)

    def _doubtful(self, t: Try, launch: Launch, result: Faulted, prepared: Prepared) -> Verdict | None:
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
            again = prepared.run([like(launch, tamed)])
            if again and isinstance(again[0], Ran):
                name = indices[0]
                return Unverified(
                    f"the values of `{name}` are used as indices and their range is not known: "
                    f"write `in {name}[...]: int(0, n)` in a //dice: line"
                )
        touched = t.bound.buffers.get(result.where.split("[")[0].strip())
        if touched is None:
            return None
        sure = self.spec.confidence.get(f"buffers.{touched.name}", Confidence.CERTAIN)
        if touched.spec.origin not in _GUESSED and sure is Confidence.CERTAIN:
            return None
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

    def _refusal(self, seen: "Sequence[Seen]") -> Verdict | None:
        """The verdict of the first case that is not right; a later one of the same kind if the first says little."""
        if (refusal := self._first(policy(self, seen) for policy in OF_ALL_RUNS)) is not None:
            return refusal
        first: Verdict | None = None
        for s in seen:
            verdict = self._compare(s)
            if verdict is None:
                continue
            tells = max(buffer.count for buffer in s.t.bound.checked) >= TELLING_ELEMENTS
            if first is None:
                first = verdict
            elif tells and isinstance(verdict, (Wrong, Unsafe)) and _kind(verdict) == _kind(first):
                return verdict
            if tells or not isinstance(verdict, (Wrong, Unsafe)):
                return first
        return first

    def _compare(self, s: "Seen") -> Verdict | None:
        return self._first(refusal for policy in OF_A_CASE for refusal in policy(s))

    def all_close(self, t: Try, buffer: BoundBuffer, outputs: Sequence[Array]) -> bool:
        """Outputs that differ from run to run are all right, or at least near to each other."""
        if t.expectation is not None:
            return all(
                self.difference(t, buffer, output, poison).agrees
                for poison, output in zip(POISONS, outputs, strict=False)
            )
        expected = buffer.element.decode(outputs[0])
        terms = longest_sum(t.bound)
        return all(compare(o, expected, buffer.element, accumulated=terms).agrees for o in outputs[1:])

    def difference(self, t: Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """How an output compares with its reference, after every second opinion that may excuse it."""
        difference = self.against(t, buffer, got, 1.0, poison)
        if difference.agrees or difference.rule == "unchanged":
            return difference
        if (exact := self._exactly(t, buffer, got, poison)).agrees:
            return exact
        few = 4 * difference.wrong_elements <= difference.total_elements or difference.total_elements < TELLING_ELEMENTS
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
        error = max(self.accepted_error(t, buffer), self._single_error(t, buffer))
        slack = (4 if difference.rule == "bias" else 2) * error
        if slack < difference.max_error:
            return difference
        excused = self.against(t, buffer, got, slack, poison)
        return self.against(t, buffer, got, 4 * error, poison) if excused.rule == "bias" else excused

    def against(self, t: Try, buffer: BoundBuffer, got: Array, slack: float, poison: int = 0) -> Difference:
        assert t.expectation is not None
        expected = t.expectation.values[buffer.name]
        spread = t.expectation.spread.get(buffer.name)
        untouched = t.expectation.untouched.get(buffer.name)
        if (still := t.expectation.still.get(buffer.name)) is not None:
            return self._against_recorded(t, buffer, got, slack, still)
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

    def _against_recorded(self, t: Try, buffer: BoundBuffer, got: Array, slack: float, still: Array) -> Difference:
        """The comparison with what the program left, of all numbers that it or the kernel has changed."""
        assert t.expectation is not None and buffer.data is not None
        moved = ~still | differing(got, buffer.data)
        if not moved.any():
            return Difference(0.0, 0, got.size)
        expected = t.expectation.values[buffer.name]
        difference = compare(
            got[moved], expected[moved], buffer.element, accumulated=t.expectation.terms(buffer.name, t.bound),
            tolerance=choose(self.spec.tolerances, buffer.name), slack=slack, rounded=True,
            made_of=0.0 if expected[moved].any() else input_size(t.bound),
        )  # fmt: skip
        if difference.agrees:
            return difference
        return evolve(difference, index=int(np.flatnonzero(moved)[difference.index]), total_elements=got.size)

    def _yardstick_of(self, t: Try) -> Yardstick | None:
        """The reference as far as it can be asked about a case: what was recorded is all that is known of its case."""
        return None if t.bound.recorded and not isinstance(self.yardstick, KernelYardstick) else self.yardstick

    def _relaxed(self, t: Try, buffer: BoundBuffer, values: Array) -> Try:
        assert t.expectation is not None
        return evolve(t, expectation=evolve(t.expectation, values={**t.expectation.values, buffer.name: values}))

    def _exactly(self, t: Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison with the accepted kernel as it would be in double precision: a better kernel is right too."""
        assert t.expectation is not None
        yardstick = self._yardstick_of(t)
        if yardstick is None or t.bound.large or "fp64" in self.without or t.expectation.still:
            return _NO_OPINION
        if id(t) not in self.exact:
            self.exact[id(t)] = yardstick.exactly(t.bound)
        exact = self.exact[id(t)]
        if exact is None:
            return _NO_OPINION
        expectation = evolve(t.expectation, values=exact.values, spread=exact.spread)
        return self.against(evolve(t, expectation=expectation), buffer, got, 1.0, poison)

    def _in_single(self, t: Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison where the reference's answer in single precision is as good as the one in double."""
        assert t.expectation is not None
        plain = self.in_single(t)
        if plain is None:
            return _NO_OPINION
        values = either(
            got, t.expectation.values[buffer.name], plain[buffer.name], buffer.element,
            accumulated=t.expectation.terms(buffer.name, t.bound), tolerance=choose(self.spec.tolerances, buffer.name),
        )  # fmt: skip
        return self.against(self._relaxed(t, buffer, values), buffer, got, 1.0, poison)

    def _at_edges(self, t: Try, buffer: BoundBuffer, got: Array, poison: int) -> Difference:
        """The comparison where, number by number, rounding decides which way the reference goes."""
        assert t.expectation is not None
        expected = t.expectation.values[buffer.name]
        floats = [b for b in t.bound.inputs if b.element.kind is Kind.FLOAT]
        yardstick = self._yardstick_of(t)
        if yardstick is None or not floats or t.expectation.still:
            return _NO_OPINION
        if buffer.element.kind is Kind.FLOAT and yardstick.defines_nan():
            return _NO_OPINION  # it chooses nothing, so it has no edges
        plain = self.in_single(t)
        if whole(t.bound) and (plain is None or np.array_equal(plain[buffer.name], expected)):
            return _NO_OPINION  # nothing was rounded: equals are equal, and a step is a step
        terms = t.expectation.terms(buffer.name, t.bound)
        if id(t) not in self.edges:
            self.edges[id(t)] = yardstick.at_edges(t.bound, terms)
        others = [answer[buffer.name] for answer in (*self.edges[id(t)], *([plain] if plain is not None else []))]
        if not others:
            return _NO_OPINION
        values = at_edges(
            got, expected, others, buffer.element, spread=t.expectation.spread.get(buffer.name),
            accumulated=terms, tolerance=choose(self.spec.tolerances, buffer.name),
        )  # fmt: skip
        return self.against(self._relaxed(t, buffer, values), buffer, got, 1.0, poison)

    def accepted_error(self, t: Try, buffer: BoundBuffer) -> float:
        """The accepted kernel's own error in units of the tolerance; 0 when there is none or it is wrong."""
        if self.baseline is None or t.expectation is None:
            return 0.0
        accepted = open_kernel(self.baseline, self.job.kernel, self.backend, self.job.run_deadline_s, self.job.seed)
        if isinstance(accepted, BadReference):
            return 0.0
        (answer,) = run_groups(accepted.prepared, [[t.launches[0]]])
        if isinstance(answer, (Faulted, NotSupported)):
            return 0.0
        error = self.against(t, buffer, answer[0].outputs[buffer.name], 1.0).max_error
        return error if error <= MAX_SLACK else 0.0

    def _single_error(self, t: Try, buffer: BoundBuffer) -> float:
        """The reference's own error in single precision, in the same units; 0 where it has none or goes another way."""
        if (plain := self.in_single(t)) is None:
            return 0.0
        error = self.against(t, buffer, buffer.element.encode(plain[buffer.name]), 1.0).max_error
        return error if error <= 4 * MAX_SLACK else 0.0

    def undefined(self, t: Try) -> str | None:
        """Why the reference says nothing in this case although it gives an answer; None when it says something."""
        yardstick = self._yardstick_of(t)
        return None if yardstick is None or t.bound.large else yardstick.undefined(t.bound)

    def right_alone(self, t: Try, buffer: BoundBuffer) -> bool:
        """The wrong case is right when nothing ran before it: the kernel remembers what it should compute.

        A race may come out right once in a fresh process, so several are asked.
        """
        return all(self._right_in_a_fresh_process(t, buffer) for _ in range(_FRESH_PROCESSES))

    def _right_in_a_fresh_process(self, t: Try, buffer: BoundBuffer) -> bool:
        fresh = self.backend.prepare(self.source)
        if isinstance(fresh, (CompileFailed, NotSupported)):
            return False
        alone = fresh.run([t.launches[0]])
        return (
            bool(alone)
            and isinstance(alone[0], Ran)
            and self.against(t, buffer, alone[0].outputs[buffer.name], 1.0).agrees
        )

    def in_single(self, t: Try) -> Mapping[str, Array] | None:
        """What the reference gives for a case in single precision; None where there is no such answer."""
        yardstick = self._yardstick_of(t)
        if yardstick is None:
            return None
        if id(t) not in self.plain:
            self.plain[id(t)] = yardstick.plain(t.bound)
        return self.plain[id(t)]

    def settled(self, t: Try, buffer: BoundBuffer) -> bool:
        """A difference from the reference says something: with tiny values single precision may honestly lose it all."""
        if t.bound.distribution is not Distribution.TINY or buffer.element.kind is not Kind.FLOAT:
            return True
        if self.yardstick is None or not self.yardstick.scale_free(t.bound, buffer.name):
            return False
        plain = self.in_single(t)
        return plain is None or self.against(t, buffer, buffer.element.encode(plain[buffer.name]), 1.0).agrees

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

    def _name_checks(self, seen: "Sequence[Seen]") -> None:
        """What a kernel whose results agree has had, by the inputs and outputs that there were."""
        drawn = {s.t.bound.distribution for s in seen}
        self.had |= {BY_INPUTS[distribution] for distribution in drawn & set(BY_INPUTS)}
        if drawn - {Distribution.DEFAULT, *BY_INPUTS}:
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


def _recorded_expectation(case: RecordedCase) -> Expectation:
    """What the program left in the memory of a recorded launch."""
    buffers = {name: case.bound.buffers[name] for name in case.expected}
    return Expectation(
        {name: buffer.element.decode(case.expected[name]) for name, buffer in buffers.items()},
        rounded=True,
        still={name: ~differing(case.expected[name], b.data) for name, b in buffers.items() if b.data is not None},
    )


def _plainly_named(bound: Bound) -> bool:
    """Every buffer is a whole argument, so that a reference may be asked for it by the parameter's name."""
    return not bound.values and not bound.variables


def _listed(labels: Sequence[str]) -> str:
    """`captured 1, captured 3 and 2 more`."""
    shown = ", ".join(labels[:2])
    return shown if len(labels) <= 2 else f"{shown} and {len(labels) - 2} more"


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
