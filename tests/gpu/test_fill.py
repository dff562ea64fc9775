"""The whole loop on a card: the shipped checkpoint fills a body, the card compiles, verifies and times each candidate."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dice_lsp
from dice_lsp.baseline import make
from dice_lsp.config import Settings
from dice_lsp.hint import candidate_title
from dice_lsp.pipeline import Engine
from dice_lsp.records import (
    Compiled,
    Document,
    Faster,
    FillReport,
    NotCompared,
    Same,
    Slower,
    Timing,
    Verified,
    kind_of,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.selection import body_region
from tests.gpu.support import KINDS, record

pytestmark = pytest.mark.gpu
DEMO = Path(dice_lsp.__file__).parent / "demo"
KERNELS = ("saxpy", "row_softmax", "transpose")
_VERDICTS: dict[tuple[str, str], list[tuple[str, str]]] = {}


async def fill(kind: str, name: str) -> tuple[FillReport, float]:
    path = DEMO / f"{name}.cu"
    document = Document(path.as_uri(), 0, path.read_text())
    engine = Engine(Settings(backend=kind, candidates=8))
    try:
        await engine.start()
        started = time.monotonic()
        report = await engine.fill(body_region(document, parse(document.text).kernels[0]), str(path))
        return report, time.monotonic() - started
    finally:
        await engine.close()


async def test_a_blank_body_is_filled_beside_the_baseline_that_was_kept() -> None:
    kind, path = KINDS[0], DEMO / "saxpy.cu"
    text = path.read_text()
    document = Document(path.as_uri(), 1, text)
    kernel = parse(text).kernels[0]
    engine = Engine(Settings(backend=kind, candidates=4))
    try:
        (checked,) = await engine.check(document, str(path), kernels=[kernel.id])
        build = await engine.code(document, str(path), kernel.id)
        assert isinstance(build, Compiled), build
        kept = make(kernel, checked, build, "accepted")
        blank = Document(path.as_uri(), 2, text[: kernel.body_start] + "\n" + text[kernel.body_end :])
        report = await engine.fill(body_region(blank, parse(blank.text).kernels[0]), str(path), baseline=kept)
    finally:
        await engine.close()
    best = report.candidates[0]
    assert isinstance(best.verdict, Verified) and isinstance(best.timing, Timing), best
    assert not isinstance(best.comparison, NotCompared), best.comparison
    record("fill of a blank body", kind, "saxpy", candidate_title(best))


@pytest.fixture(params=[(kind, name) for name in KERNELS for kind in KINDS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    yield request.param


async def test_a_body_is_filled_verified_and_timed_beside_the_accepted_kernel(case: tuple[str, str]) -> None:
    kind, name = case
    report, elapsed_s = await fill(kind, name)
    assert report.candidates, report.reason
    best = report.candidates[0]
    assert isinstance(best.verdict, Verified) and best.verdict.device != "host", best.verdict
    assert isinstance(best.timing, Timing), best.timing
    # The accepted kernel stood in the region, so there is something to compare with.
    assert not isinstance(best.comparison, NotCompared), best.comparison
    verified = sum(isinstance(item.verdict, Verified) for item in report.candidates)
    ratio = f"{best.comparison.ratio:.3f}" if isinstance(best.comparison, (Faster, Slower, Same)) else ""
    words = f"{verified} of {len(report.candidates)}"
    record("fill", kind, name, words, candidate_title(best), ratio, f"{elapsed_s:.1f} s")
    _VERDICTS[kind, name] = [(item.candidate.text, kind_of(type(item.verdict))) for item in report.candidates]
    if all((other, name) in _VERDICTS for other in KINDS):
        first, second = (sorted(_VERDICTS[other, name]) for other in KINDS)
        assert first == second, "the two back ends disagree on a candidate"
