"""How good a checkpoint is: independent samples of each task, judged by the worker, with unbiased estimates.

`pass@k` is the estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1). `fast_p` is KernelBench's share of samples
that are right and more than `p` times as fast as what they are held against (arXiv 2502.10517); here that is the task's
plain body on the same GPU, and the lower end of the measured interval must exceed `p`.
"""

import asyncio
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.diffusion.checkpoint import CheckpointError
from dice_lsp.pipeline import fill_request
from dice_lsp.records import (
    Cheating,
    Compiled,
    CompileFailed,
    DecodeSettings,
    Faster,
    Judged,
    Same,
    Slower,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)
from dice_lsp.source.closing import close_blocks
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.screen import screen_fill
from dice_lsp.training.fill_tasks import FillTask
from dice_lsp.training.judging import Judges, job_of, judged_and_timed
from dice_lsp.training.sampling import Sampler, Samples

KINDS = (
    "verified", "wrong", "unsafe", "cheating", "unverified", "no compile", "not compiled", "refused", "unfinished", "overturned",
)  # fmt: skip
"""How a sample can end. `refused`: its text may not stand in a body; `overturned`: verified, and with other inputs not."""
_COMPILES = frozenset({"verified", "wrong", "unsafe", "cheating", "unverified", "overturned"})
SECOND_SEED = 1000
"""Added to the seed for the second judgement."""


@frozen
class Outcome:
    """How one sample ended, and how many times as fast as the plain body it is: both ends of the interval."""

    kind: str
    low: float | None = None
    ratio: float | None = None


@frozen
class TaskScore:
    """One task: its samples and the likeliest fill."""

    task: str
    family: str
    samples: tuple[Outcome, ...]
    greedy: Outcome

    @property
    def right(self) -> int:
        return sum(item.kind == "verified" for item in self.samples)

    def faster_than(self, factor: float) -> int:
        """Samples that are right and whose measured speed-up is above `factor` for certain."""
        return sum(item.kind == "verified" and item.low is not None and item.low > factor for item in self.samples)


@frozen
class Score:
    """Figures of some tasks. Shares are between 0 and 1; `fast_1` and `fast_2` are None where nothing was timed."""

    tasks: int
    samples: int
    pass_at_1: float
    pass_at_1_error: float
    """Standard error over the tasks."""
    pass_at_8: float | None
    """None when there are fewer than 8 samples of a task."""
    greedy: float
    compiled: float
    """Share of the samples."""
    verified: float
    """Share of the tasks with a verified sample."""
    fast_1: float | None
    fast_2: float | None
    fast_2_any: float | None
    """Share of the tasks with a verified sample that is over twice as fast."""
    ends: Mapping[str, int]
    """How many samples ended how."""


def pass_at(k: int, samples: int, right: int) -> float:
    """Chance that one of `k` samples drawn without replacement from `samples`, of which `right` are right, is right."""
    if not 0 < k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples and there are {samples}: raise --samples")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def score(results: Sequence[TaskScore], timed: bool) -> Score:
    """The figures of some tasks, each task with the same weight. `timed`: a GPU was there."""
    firsts = [pass_at(1, len(item.samples), item.right) for item in results]
    enough = all(len(item.samples) >= 8 for item in results)
    ends = Counter(outcome.kind for item in results for outcome in item.samples)
    total = sum(ends.values())

    def fast(factor: float) -> float | None:
        return statistics.fmean(item.faster_than(factor) / len(item.samples) for item in results) if timed else None

    return Score(
        tasks=len(results),
        samples=total,
        pass_at_1=statistics.fmean(firsts),
        pass_at_1_error=statistics.stdev(firsts) / math.sqrt(len(firsts)) if len(firsts) > 1 else 0.0,
        pass_at_8=statistics.fmean(pass_at(8, len(item.samples), item.right) for item in results) if enough else None,
        greedy=statistics.fmean(item.greedy.kind == "verified" for item in results),
        compiled=sum(ends[kind] for kind in _COMPILES) / total,
        verified=statistics.fmean(item.right > 0 for item in results),
        fast_1=fast(1.0),
        fast_2=fast(2.0),
        fast_2_any=statistics.fmean(item.faster_than(2.0) > 0 for item in results) if timed else None,
        ends={kind: ends[kind] for kind in KINDS if ends[kind]},
    )


def by_family(results: Iterable[TaskScore], timed: bool) -> dict[str, Score]:
    """Figures of each family, in the order in which the families come."""
    grouped: dict[str, list[TaskScore]] = {}
    for item in results:
        grouped.setdefault(item.family, []).append(item)
    return {family: score(items, timed) for family, items in grouped.items()}


class Evaluation:
    """Samples tasks with one checkpoint and judges them with a pool of workers while the next task is sampled."""

    def __init__(
        self, sampler: Sampler, judges: Judges, settings: Settings, *, samples: int, decode: DecodeSettings,
        twice: bool = False,
    ) -> None:  # fmt: skip
        """`twice`: what is verified is judged again with other inputs, and a second verdict that differs counts as wrong."""
        self.sampler, self.judges, self.settings = sampler, judges, settings
        self.samples, self.decode, self.twice = samples, decode, twice

    async def run(
        self, tasks: Sequence[FillTask], on_task: Callable[[TaskScore], None] | None = None
    ) -> list[TaskScore]:
        """The scores, in the order of the tasks. `on_task` hears of each as it ends. Raises `CheckpointError`."""
        running: list[asyncio.Task[TaskScore]] = []

        async def finish(task: FillTask, written: Samples) -> TaskScore:
            result = await self._score(task, written)
            if on_task is not None:
                on_task(result)
            return result

        refused: CheckpointError | None = None
        async with asyncio.TaskGroup() as group:
            for number, task in enumerate(tasks):
                try:
                    written = await asyncio.to_thread(self._sample, task, number)
                except CheckpointError as error:
                    # Raised here it would come out inside a group.
                    refused = error
                    break
                running.append(group.create_task(finish(task, written)))
        if refused is not None:
            raise refused
        return [item.result() for item in running]

    def _sample(self, task: FillTask, number: int) -> Samples:
        model = parse(task.text)
        region = task.region()
        assert region.kernel is not None
        request = fill_request(region, model, launch_spec(task.text, region.kernel, model), 1, self.settings.seed)
        try:
            return self.sampler.samples(request, self.samples, self.decode, self.settings.seed * 100_003 + number)
        except CheckpointError as error:
            raise CheckpointError(f"{task.name}: {error}") from error

    async def _score(self, task: FillTask, written: Samples) -> TaskScore:
        texts = {text for text in (written.greedy, *written.drawn) if text is not None}
        outcomes = dict(zip(texts, await asyncio.gather(*(self._outcome(task, text) for text in texts)), strict=True))

        def outcome(text: str | None) -> Outcome:
            return Outcome("unfinished") if text is None else outcomes[text]

        return TaskScore(task.name, task.family, tuple(map(outcome, written.drawn)), outcome(written.greedy))

    async def _outcome(self, task: FillTask, text: str) -> Outcome:
        region = task.region()
        text = close_blocks(region, text)
        if not text.strip() or screen_fill(region, text) is not None:
            return Outcome("refused")
        filled = region.prefix + text + region.suffix
        job = job_of(filled, task.path, task.kernel, self.settings)
        # Launch and reference are read from the task, so that no sample can bring its own.
        assert region.kernel is not None
        spec = launch_spec(task.text, region.kernel, parse(task.text))
        job = attrs.evolve(job, reference_text=task.text, spec=spec)
        judged = await judged_and_timed(self.judges, job, task.solved())
        kind = kind_of(judged)
        if kind == "verified" and self.twice:
            again = await self.judges.judge(attrs.evolve(job, seed=job.seed + SECOND_SEED))
            kind = "verified" if isinstance(again.verdict, Verified) else "overturned"
        comparison = judged.comparison
        if kind == "verified" and isinstance(comparison, (Faster, Slower, Same)):
            return Outcome(kind, comparison.low, comparison.ratio)
        return Outcome(kind)


def kind_of(judged: Judged) -> str:
    """One of `KINDS` for the worker's answer."""
    if isinstance(judged.build, CompileFailed):
        return "no compile"
    if not isinstance(judged.build, Compiled):
        return "not compiled"
    names = {Verified: "verified", Wrong: "wrong", Unsafe: "unsafe", Cheating: "cheating", Unverified: "unverified"}
    return names[type(judged.verdict)]


def as_json(about: Mapping[str, Any], sets: Mapping[str, Sequence[TaskScore]], timed: bool) -> str:
    """Everything that was found: figures by set and family, and how each sample of each task ended."""
    found = {
        name: {
            "all": attrs.asdict(score(results, timed)),
            "families": {family: attrs.asdict(item) for family, item in by_family(results, timed).items()},
            "tasks": [attrs.asdict(item) for item in results],
        }
        for name, results in sets.items()
    }
    return json.dumps({**about, "sets": found}, indent=2)


_COLUMNS = ("tasks", "pass@1", "pass@8", "greedy", "compiled", "solved", "fast_1", "fast_2")


def as_markdown(about: Mapping[str, Any], sets: Mapping[str, Sequence[TaskScore]], timed: bool) -> str:
    """A table for each set: a line for each family, then one for all."""
    lines = [
        f"# {about['model']}",
        "",
        "; ".join(f"{key} {value}" for key, value in about.items() if key != "model"),
        "",
    ]
    for name, results in sets.items():
        lines += [f"## {name}", "", "| family | " + " | ".join(_COLUMNS) + " |"]
        lines.append("| --- |" + " ---: |" * len(_COLUMNS))
        rows = {**by_family(results, timed), "**all**": score(results, timed)}
        lines += [f"| {family} | " + " | ".join(figures(item)) + " |" for family, item in rows.items()] + [""]
    if not timed:
        lines += ["Nothing was timed, so there is no fast_1 and fast_2: that needs a GPU.", ""]
    return "\n".join(lines)


def figures(item: Score) -> tuple[str, ...]:
    """The columns of a table, in the order of `_COLUMNS`."""
    shares = (item.pass_at_1, item.pass_at_8, item.greedy, item.compiled, item.verified, item.fast_1, item.fast_2)
    return (str(item.tasks), *("-" if value is None else f"{value:.1%}" for value in shares))
