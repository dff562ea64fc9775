"""A launch that was inferred is tried on the host before a GPU sees it.

What a directive or the program itself says is run as it is said. What was read from a kernel's body or taken from one
of several paths may be wrong, and a wrong launch must neither reach a card nor be held against the kernel: it is run
once with every access checked, and where it leaves a buffer the launch counts as not known.
"""

import functools
import re
from collections.abc import Callable

from dice_lsp.records import (
    CompileFailed,
    Confidence,
    JudgeJob,
    LaunchSpec,
    Origin,
    Unsafe,
    Unverified,
    Verdict,
    Wrong,
)
from dice_lsp.worker.arguments import BadSpec, bind
from dice_lsp.worker.cases import Budget, choose_cases
from dice_lsp.worker.code_notes import own_text, reads_clock
from dice_lsp.worker.launch import Backend, BlockOrder, Faulted, Guard, NotSupported, Source

_READ_FROM_BODY = (Origin.INFERRED, Origin.DEFAULT)
_SIDES = ("grid", "block", "smem_bytes")
_OF_A_LAUNCH = ("out_of_bounds", "shared_memory", "fault")
"""Hazards that a wrong launch makes of a right kernel, whatever was guessed."""
_OF_A_BLOCK = ("race", "divergent_barrier", "deadlock", "uninitialized")
"""Hazards that a wrong block makes."""
_WORDS = {
    "out_of_bounds": "is out of bounds",
    "shared_memory": "is outside of its shared memory",
    "race": "is a race",
    "divergent_barrier": "at a barrier",
    "deadlock": "in a deadlock",
    "uninitialized": "was never written",
}
_OF_A_SIZE = ("fault", "race", "divergent_barrier", "deadlock")
"""Hazards that a size outside of what the program would use makes: an assertion on multiples, tiles that overlap."""
_OF_THE_CLOCK = ("race", "non_deterministic", "address_dependent", "occupancy_dependent")
"""What a kernel that writes down the time does in every right run."""
SMALL_SIZE = 64
"""Kernels that are right for every size that their program uses may ask for more than this: an assertion says so, or a tile."""
_SIZE = re.compile(r"(\w+)=(\d+)")
TRIAL_BUDGET = Budget(elements=1 << 22, products=1 << 25, bytes=256 << 20, given_elements=1 << 23)
"""More than the host is asked for when it compares results: here it runs a kernel once or twice and computes nothing else."""


def is_guess(spec: LaunchSpec, text: str) -> bool:
    """Whether a launch has to be tried; `text` is the kernel's own.

    A size that was read from the body is the largest subscript that the body can make, whatever sizes and inputs there
    are, and a kernel whose threads share no memory is right in any block: neither needs a run.
    """
    if spec.origins.get("grid") is Origin.CAPTURED:
        return False
    together = "__shared__" in text or "_sync" in text or "cooperative_groups" in text
    origins = {buffer.name: buffer for buffer in spec.buffers}
    for field, sure in spec.confidence.items():
        if sure is Confidence.CERTAIN:
            continue
        kind, _, label = field.partition(".")
        if kind == "dims" or (kind in _SIDES and spec.origins.get(kind) in _READ_FROM_BODY and not together):
            continue
        buffer = origins.get(label) if kind == "buffers" else None
        if buffer is not None and buffer.origin in _READ_FROM_BODY and not buffer.init.startswith("int("):
            continue
        return True
    return False


def refuted(
    job: JudgeJob, source: Source, host: Backend | None, check_cancelled: Callable[[], None] = lambda: None
) -> str | None:
    """Why an inferred launch is not used, in one sentence; None when a run of it on the host stays within all memory.

    Args:
        job: the kernel with its spec.
        source: the kernel as the host takes it, compiled for the device.
        host: the emulation; None when there is no C++ compiler.
        check_cancelled: called between steps; whatever it raises ends the trying.
    """
    spec, clause = job.spec, "write `launch <<<grid, block>>>` and the buffers in a //dice: line"
    if host is None:
        return f"the launch was inferred and there is no C++ compiler to try it with on the host: {clause}"
    prepared = host.prepare(source)
    if isinstance(prepared, NotSupported):
        return f"the launch was inferred and cannot be tried on the host, {prepared.reason}: {clause}"
    if isinstance(prepared, CompileFailed):
        return f"the launch was inferred and cannot be tried on the host, whose compiler does not take it: {clause}"
    cases = choose_cases(spec, job.kernel, TRIAL_BUDGET)
    if isinstance(cases, BadSpec):
        return f"the launch was inferred and cannot be tried on the host, {cases.reason}" if cases.too_large else None
    sure = spec.confidence.get("block", Confidence.CERTAIN) is Confidence.CERTAIN
    block_guessed = not sure and spec.origins.get("block") in _READ_FROM_BODY
    hazards = (*_OF_A_LAUNCH, *(_OF_A_BLOCK if block_guessed else ()))
    given = tuple(case for case in cases if case.given) or cases
    for case in (given[0], given[-1])[: len(given)]:
        # One order of the threads is enough for what is large.
        both = case is given[0]
        check_cancelled()
        bound = bind(spec, job.kernel, case.dims, job.seed)
        if isinstance(bound, BadSpec):
            continue
        launch = functools.partial(bound.launch, seed=job.seed, deadline_s=job.run_deadline_s)
        runs = [
            launch(poison=0, order=BlockOrder.ASCENDING, guard=Guard.RIGHT),
            launch(poison=1, order=BlockOrder.DESCENDING, guard=Guard.LEFT),
        ]
        for result in prepared.run(runs if both else runs[:1]):
            if isinstance(result, NotSupported):
                return f"the launch was inferred and cannot be tried on the host, {result.reason}: {clause}"
            if isinstance(result, Faulted) and result.hazard == "timeout" and both:
                return f"the launch was inferred and a run on the host takes too long with {bound.label}: {clause}"
            if isinstance(result, Faulted) and result.hazard in hazards and "misaligned" not in result.where:
                what = f"{result.where} {_WORDS.get(result.hazard, 'is not possible')}"
                return f"the launch was inferred and is not right, {what} with {bound.label}: {clause}"
    return None


def softened(verdict: Verdict, spec: LaunchSpec, text: str = "", on_host: bool = False) -> Verdict:
    """What is held against a kernel at sizes that nothing bounds and nobody gave may be the fault of those sizes.

    A matrix product of whole tiles is right, and reads beyond its rows where a made-up size is no multiple of a tile.
    `text` is the kernel's own, `on_host` whether the emulation ran it, which is slow.
    """
    made_up = [
        dim.name for dim in spec.dims if spec.confidence.get(f"dims.{dim.name}", Confidence.CERTAIN) is Confidence.GUESS
    ]
    if not isinstance(verdict, (Wrong, Unsafe)) or "captured" in verdict.case:
        return verdict
    if isinstance(verdict, Unsafe) and verdict.hazard == "unwritten_output":
        label = verdict.where.partition(":")[0]
        read = next((b for b in spec.buffers if b.name == label and b.origin is Origin.INFERRED), None)
        if read is not None and spec.origins.get("grid") is Origin.LAUNCH_SITE:
            # `if (i > N) return;` says N + 1, and threads that the program does not launch would write the last one.
            clause = f"out {label}[...]"
            said = f"unwritten output ({verdict.where}) at a size that was read from the kernel's body, {verdict.case}"
            return Unverified(f"{said}: write `{clause}` in a //dice: line")
    if isinstance(verdict, Unsafe):
        if verdict.hazard in _OF_THE_CLOCK and reads_clock(text):
            return Unverified(f"reads the clock, so that {verdict.where} is no fault ({verdict.case})")
        label = verdict.where.partition("[")[0]
        taken = next((b for b in spec.buffers if b.name == label and b.origin is not Origin.DIRECTIVE), None)
        if verdict.hazard == "mutated_input" and taken is not None and text:
            # Nobody said that it is an input but we; a parameter that is `const` says it itself.
            if not re.search(rf"\bconst\b[^,(){{}};]*\b{re.escape(label)}\b", text):
                return Unverified(
                    f"writes {verdict.where}, which was taken for an input: write `io {label}[...]` in a //dice: line"
                )
        defaults = [dim.name for dim in spec.dims if dim.origin is Origin.DEFAULT]
        given = spec.origins.get("grid") in (Origin.DIRECTIVE, Origin.CAPTURED)
        if verdict.hazard == "timeout" and on_host and not given:
            clause = f"smaller sizes, e.g. `{defaults[0]} = ...`," if defaults else "a `launch` clause"
            return Unverified(f"no end on the host ({verdict.where}, {verdict.case}): write {clause} in a //dice: line")
        small = {name for name, value in _SIZE.findall(verdict.case) if int(value) < SMALL_SIZE}
        if verdict.hazard in _OF_A_SIZE and small & {*defaults}:
            made_up = made_up or defaults
    if not made_up:
        return verdict
    if isinstance(verdict, Unsafe):
        what = f"{verdict.hazard.replace('_', ' ')} ({verdict.where})"
    else:
        what = f"{verdict.buffer}[{verdict.index}] differs"
    clause = ", ".join(f"{label} = ..." for label in made_up)
    return Unverified(f"{what} at sizes that were made up, {verdict.case}: write `{clause}` in a //dice: line")


def own_guess(job: JudgeJob, source: Source) -> bool:
    """Whether the launch of a job has to be tried before a GPU runs it."""
    return job.spec.launchable and is_guess(job.spec, own_text(source))
