"""Records judged again by the worker: what is no longer verified, or no longer as fast, does not hold any more.

A record may come from a stranger, so its fill is screened as a model's is, its reference is read from the text without it, and
nothing of the machine that it came from is believed. Whole Python files are left alone, because judging one runs its host code.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.dataset.cuke import (
    MIN_SPEEDUP,
    CukeError,
    CukeRecord,
    has_code,
    kernel_in,
    region_of,
    with_directive,
)
from dice_lsp.flag_finder import shared_finder
from dice_lsp.pipeline import judge_job
from dice_lsp.process import ChildDied, ChildError
from dice_lsp.records import (
    Ambiguous,
    CompileFailed,
    Faster,
    Judged,
    JudgeJob,
    Kernel,
    NotCompared,
    NotCompiled,
    Same,
    Slower,
    Timing,
    Unverified,
    Verified,
)
from dice_lsp.source.flags import device_flags
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.screen import screen_fill
from dice_lsp.wording import refusal
from dice_lsp.worker.client import WorkerClient

WHOLE_FILE = "a whole Python file: judging it runs host code, which only `dice-lsp eval --kernelbench` does"


@frozen
class Outcome:
    """What became of one record."""

    record: CukeRecord
    """With the new evidence, where there is any."""
    dropped: str = ""
    """Why it no longer holds, as one sentence; empty where it does."""
    left: str = ""
    """Why it was not judged, or which part of it was not measured again; empty where all was."""


async def judge_again(
    records: Sequence[CukeRecord],
    settings: Settings,
    *,
    min_speedup: float = MIN_SPEEDUP,
    jobs: int = 1,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> tuple[Outcome, ...]:
    """Judge each record, `jobs` at a time, each in a worker of its own; the outcomes are in the order of the records.

    A worker that cannot be started or dies says nothing against a record: that one is left as it is.
    """
    waiting = iter(enumerate(records))
    found: dict[int, Outcome] = {}

    async def work() -> None:
        worker = WorkerClient(settings)
        try:
            for place, record in waiting:
                found[place] = await _outcome(worker, record, settings, min_speedup)
                if on_outcome is not None:
                    on_outcome(found[place])
        finally:
            await worker.close()

    await asyncio.gather(*(work() for _ in range(max(1, min(jobs, len(records))))))
    return tuple(found[place] for place in range(len(records)))


async def _outcome(worker: WorkerClient, record: CukeRecord, settings: Settings, min_speedup: float) -> Outcome:
    if record.whole_file or record.reference_kind == "pytorch":
        return Outcome(record, left=WHOLE_FILE)
    job = await asyncio.to_thread(job_of, record, settings)
    if isinstance(job, str):
        return Outcome(record, dropped=job)
    try:
        judged = await worker.judge(job)
    except (ChildDied, ChildError, TimeoutError) as error:
        return Outcome(record, left=f"the worker could not judge it: {error}")
    return settled(record, judged, min_speedup)


def job_of(record: CukeRecord, settings: Settings) -> JudgeJob | str:
    """What the worker is asked about a record, or why it cannot be asked, as one sentence."""
    try:
        region = region_of(record, record.rival)
    except CukeError as error:
        return str(error)
    refused = screen_fill(region, record.middle)
    if refused is not None:
        return f"the fill {refused}"
    kernel, text = _kernel_of(record, record.text)
    rival, before = _kernel_of(record, record.before)
    if kernel is None or rival is None:
        return f"there is no kernel {record.kernel} in its text"
    path = record.source if record.origin == "editor" and Path(record.source).is_absolute() else ""
    # Only a file of this machine's own has a project whose flags and headers it needs.
    flags = shared_finder().find(path, settings).flags if path else device_flags(_nowhere(), settings, None)
    compared = has_code(record.rival)
    spec = launch_spec(text, kernel, parse(text))
    benchmark = settings.benchmark
    return attrs.evolve(
        judge_job(text, path or _nowhere(), kernel, spec, flags, settings, verify=True, benchmark=benchmark),
        baseline_text=before if compared else None,
        baseline_kernel=rival if compared else None,
        reference_text=before,
    )


def settled(record: CukeRecord, judged: Judged, min_speedup: float) -> Outcome:
    """What a judgement says of a record."""
    reason = _not_verified(judged)
    if reason:
        return Outcome(record, dropped=reason)
    if record.evidence is None:
        record = attrs.evolve(record, verdict=judged.verdict, evidence=judged.evidence)
    device = judged.evidence.device
    known = record.evidence
    if not isinstance(judged.timing, Timing):
        return Outcome(record, left=f"verified, and not timed again: {judged.timing.reason}")
    if known is not None and known.device != device and isinstance(record.comparison, Faster):
        return Outcome(
            record, left=f"verified, and not held against its time: that is of {known.device}, this is {device}"
        )
    comparison = judged.comparison
    if isinstance(comparison, NotCompared):
        return Outcome(record, left=f"verified, and not compared again: {comparison.reason}")
    new = attrs.evolve(
        record, verdict=judged.verdict, comparison=comparison, timing=judged.timing, evidence=judged.evidence
    )
    if new.speedup >= min_speedup:
        return Outcome(new)
    match comparison:
        case Faster():
            said = f"it is {comparison.low:.2f}x to {comparison.high:.2f}x as fast"
        case Slower() | Same():
            said = f"it is {comparison.ratio:.2f}x as fast"
        case Ambiguous():
            said = f"its speed-up could not be told: {comparison.reason}"
    return Outcome(new, dropped=f"on {device} {said}, and {min_speedup:g}x is asked for")


def _not_verified(judged: Judged) -> str:
    """Why a kernel is not verified; empty where it is."""
    build, verdict = judged.build, judged.verdict
    if isinstance(build, CompileFailed):
        first = build.errors[0]
        return f"it does not compile: line {first.line + 1}: {first.text}"
    if isinstance(build, NotCompiled):
        return f"it was not compiled: {build.reason}"
    if isinstance(verdict, Verified):
        return ""
    return f"it is not verified: {verdict.reason}" if isinstance(verdict, Unverified) else f"it is {refusal(verdict)}"


def _kernel_of(record: CukeRecord, text: str) -> tuple[Kernel | None, str]:
    """A record's kernel in a text, and that text with the record's `//dice:` lines."""
    kernel = kernel_in(parse(text), record.kernel)
    if kernel is None:
        return None, text
    told = with_directive(text, kernel, record.directive)
    return kernel_in(parse(told), record.kernel), told


def _nowhere() -> str:
    """The path of a text that belongs to no project: nothing lies around it."""
    return str(Path("/nonexistent/record.cu"))
