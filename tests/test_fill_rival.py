"""What the candidates of a fill are timed beside: the kernel that stands there, or the baseline that was kept of it."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from dice_lsp.config import Settings
from dice_lsp.hint import candidate_title, candidate_words
from dice_lsp.pipeline import Engine
from dice_lsp.records import (
    Baseline,
    Candidate,
    DecodeStats,
    Document,
    Faster,
    FillReport,
    Judged,
    JudgeJob,
    NotCompared,
    NotTimed,
    Unverified,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.selection import body_region
from tests.reports import BUILD, EVIDENCE, ON_GPU, TIMING, baseline

KERNEL = """\
void copy_cpu(const float* x, float* y, int n) {{ for (int i = 0; i < n; i++) y[i] = x[i]; }}
__global__ void copy(const float* x, float* y, int n) {{{}}}
"""
BODY = "\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = x[i];\n"
LAUNCH = "void run(const float* x, float* y, int n) { copy<<<(n + 255) / 256, 256>>>(x, y, n); }\n"
RACE = Faster(1.12, 1.1, 1.14)
OFF = "timing is switched off"


class Model:
    """Writes one candidate."""

    async def fill(
        self, request: Any, decode: Any = None, *, on_candidate: Callable[[Candidate], None]
    ) -> tuple[tuple[Candidate, ...], DecodeStats]:
        candidate = Candidate("/* once more */ " + BODY.strip(), -0.1, 20, 5)
        on_candidate(candidate)
        return (candidate,), DecodeStats(1.0, 5, 20, "tiny", "cpu")


class Card:
    """A judge with a GPU, for which every kernel is right and each race ends the same way."""

    def __init__(self, verdict: Any = ON_GPU) -> None:
        self.verdict_of_what_stands_there = verdict
        self.jobs: list[JudgeJob] = []

    def interrupt(self) -> None: ...

    async def judge(self, job: JudgeJob, on_event: Any = None) -> Judged:
        self.jobs.append(job)
        verdict = ON_GPU if "once more" in job.text else self.verdict_of_what_stands_there
        if not job.benchmark:
            return Judged(BUILD, verdict, NotTimed(OFF), NotCompared(OFF), EVIDENCE)
        rival = job.baseline_text or job.baseline_build
        return Judged(BUILD, Unverified("not run"), TIMING, RACE if rival else NotCompared("no rival"), EVIDENCE)


async def fill(body: str, kept: Baseline | None, card: Card) -> tuple[FillReport, JudgeJob]:
    """The report of a fill of the body, and the one job that was timed."""
    document = Document("file:///copy.cu", 1, KERNEL.format(body) + LAUNCH)
    engine = Engine(Settings(candidates=1))
    engine._model, engine._worker = Model(), card  # type: ignore[assignment]
    report = await engine.fill(body_region(document, parse(document.text).kernels[0]), "/copy.cu", baseline=kept)
    (timed,) = (job for job in card.jobs if job.benchmark)
    return report, timed


def kept_for(body: str, **parts: Any) -> Baseline:
    """A baseline that was accepted for this kernel, launched as it is."""
    text = KERNEL.format(body) + LAUNCH
    kernel = parse(text).kernels[0]
    return attrs.evolve(baseline(spec=launch_spec(text, kernel, parse(text)), **parts), kernel=kernel)


@pytest.mark.parametrize("body", ["\n", "\n    // TODO\n"])
async def test_a_blank_body_is_raced_against_the_baseline_that_was_kept(body: str) -> None:
    kept = kept_for(BODY)
    report, timed = await fill(body, kept, Card())
    assert timed.baseline_build == kept.build and timed.baseline_kernel == kept.kernel and timed.baseline_text is None
    (candidate,) = report.candidates
    assert candidate.comparison == RACE and candidate_words(candidate) == "1.12x"
    assert candidate_title(candidate).startswith("A  1.12x faster  12.3 us")


async def test_a_kernel_that_is_wrong_is_no_rival_and_its_baseline_is() -> None:
    kept = kept_for(BODY)
    _, timed = await fill(BODY, kept, Card(Unverified("it was not run")))
    assert timed.baseline_build == kept.build and timed.baseline_text is None


async def test_the_kernel_that_stands_there_comes_first() -> None:
    report, timed = await fill(BODY, kept_for(BODY), Card())
    assert timed.baseline_text is not None and timed.baseline_build is None
    assert report.candidates[0].comparison == RACE


async def test_a_baseline_of_another_device_or_launch_is_no_rival_and_that_is_said() -> None:
    elsewhere = kept_for(BODY, evidence=attrs.evolve(EVIDENCE, device="NVIDIA L4"))
    report, timed = await fill("\n", elsewhere, Card())
    assert timed.baseline_build is None
    assert report.candidates[0].comparison == NotCompared(
        "the baseline was accepted on NVIDIA L4, this is NVIDIA H200; accept again here", "other device"
    )
    report, timed = await fill("\n", attrs.evolve(kept_for(BODY), launch_key="another"), Card())
    comparison = report.candidates[0].comparison
    assert timed.baseline_build is None and isinstance(comparison, NotCompared) and comparison.label == "other launch"


async def test_without_a_baseline_there_is_no_race() -> None:
    report, timed = await fill("\n", None, Card())
    assert timed.baseline_build is None and timed.baseline_text is None
    assert report.candidates[0].comparison == NotCompared("no rival")
