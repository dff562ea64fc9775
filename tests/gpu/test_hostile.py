"""The whole suite of hostile and honest kernels on a card, through the worker as a user's kernels go."""

import os
import time
from pathlib import Path

import pytest

from dice_lsp.worker.checks import CHECKS
from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.host import HostBackend
from tests.gpu.support import KINDS, Bench, record
from tests.hostile_table import (
    HONEST,
    HOSTILE,
    NOT_SEEN,
    as_text,
    columns,
    confusion,
    expectations,
    judge,
    judged,
    kinds,
    totals,
)

JOBS = max(1, min(14, (os.cpu_count() or 1) - 2))
pytestmark = pytest.mark.timeout(300)
VERIFYING = {name for name, check in CHECKS.items() if check.backends == ("gpu",)} - {
    "sanitizer",
    "timed_outputs",
    "physical_limit",
}
"""Checks that only a GPU makes, and makes when it verifies."""


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_kernels_are_refused_and_honest_ones_pass(kind: str) -> None:
    # Both back ends run one machine code; the second one need not see every honest kernel to show that.
    honest = HONEST if kind == KINDS[0] else HONEST[::3]
    started = time.monotonic()
    rows = list(judged((*HOSTILE, *honest), kind, JOBS))
    took_s = time.monotonic() - started
    print(f"{as_text(confusion(rows))}\n\n{columns(totals(rows))}")
    for expected, given, count in confusion(rows):
        record("hostile", kind, expected, given, count, "")
    for folder, verified, refused, unseen, _ in totals(rows)[1:]:
        what = f"all {folder}" if folder == "honest" else f"all {folder}, of {len(kinds(HOSTILE))} kinds"
        given = f"{verified} verified, {refused} refused, {unseen} cannot be seen"
        record("hostile", kind, what, given, int(verified) + int(refused) + int(unseen), "")
    record("hostile", kind, "all of them together", f"{JOBS} processes", len(rows), f"{took_s:.0f} s")
    bad = [f"{row.path.stem}: {row.words}, expected {row.expectation.on(row.backend)}" for row in rows if not row.fine]
    for line in bad:
        record("hostile", kind, "not as expected", line, 1, "")
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("path", [p for p in HOSTILE if expectations(p).check in VERIFYING], ids=lambda path: path.stem)
def test_only_the_check_that_it_names_finds_the_trick(bench: Bench, path: Path) -> None:
    compiler, host = Compiler(), HostBackend()
    try:
        row = judge(path, compiler, host, gpu=bench.backend, without={expectations(path).check})
    finally:
        host.close()
        compiler.close()
    assert row.words.startswith(NOT_SEEN), row.words
