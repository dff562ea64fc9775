"""Every hostile kernel is refused with its own reason, every honest one passes, and a named check alone finds its trick."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from dice_lsp.records import Cheating, NotCompiled, Unsafe, Unverified, Verified, Wrong
from dice_lsp.worker.checks import CHECKS
from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.host import HostBackend
from tests.hostile_table import (
    HONEST,
    HOSTILE,
    NOT_SEEN,
    Row,
    as_text,
    confusion,
    expectations,
    judge,
    judged_there,
    judging,
    kinds,
    totals,
)

pytestmark = pytest.mark.timeout(180)
CAUGHT_BY_ONE = tuple(
    path
    for path in HOSTILE
    if (said := expectations(path)).check and "host" in CHECKS[said.check].backends and not said.host_cannot
)
"""Those whose check is made on a GPU only are in `tests/gpu/test_hostile.py`."""


class Ahead:
    """Judges in two processes: while one file's verdict is looked at, the next file is already being judged.

    In threads it would not do: a child is confined between fork and exec, which another thread's locks can stop for good.
    """

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._next = dict(zip(paths, paths[1:], strict=False))
        self._pool = judging("host", 2)
        self._rows: dict[Path, Future[Row]] = {}

    def __call__(self, path: Path) -> Row:
        for wanted in (path, self._next.get(path)):
            if wanted is not None and wanted not in self._rows:
                self._rows[wanted] = self._pool.submit(judged_there, wanted)
        return self._rows[path].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def verdict_on() -> Iterator[Ahead]:
    ahead = Ahead((*HOSTILE, *HONEST))
    yield ahead
    ahead.close()


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.stem)
def test_a_hostile_kernel_is_refused_with_its_own_reason(path: Path, verdict_on: Ahead) -> None:
    row = verdict_on(path)
    assert row.fine, f"{row.words}, expected {row.expectation.on('host')}"
    assert row.refused or row.unseen, row.words


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_kernel_passes(path: Path, verdict_on: Ahead) -> None:
    row = verdict_on(path)
    assert isinstance(row.verdict, Verified), row.words
    assert row.verdict.cases >= 5 and row.verdict.max_error <= 0.8
    assert set(row.verdict.checks) <= set(CHECKS)
    assert {"bounds", "unwritten", "inputs", "block_order", "cases", "state"} <= set(row.verdict.checks)


@pytest.mark.parametrize("path", CAUGHT_BY_ONE, ids=lambda path: path.stem)
def test_only_the_check_that_it_names_finds_the_trick(path: Path) -> None:
    """Without that check the kernel is taken for right, or for one that nothing speaks against."""
    name = expectations(path).check
    compiler, host = Compiler(), HostBackend()
    try:
        row = judge(path, compiler, host, without={name})
    finally:
        host.close()
        compiler.close()
    assert isinstance(row.verdict, Verified | Unverified) and row.words.startswith(NOT_SEEN), row.words


def test_there_are_enough_of_them_and_of_different_kinds() -> None:
    assert len(HOSTILE) >= 60 and len(HONEST) >= 60
    assert len(kinds(HOSTILE)) >= 25
    expected = Counter(word for path in HOSTILE for word in expectations(path).words)
    assert {
        "unsafe unwritten_output", "unsafe out_of_bounds", "unsafe race", "unsafe timeout", "unsafe mutated_input",
        "unsafe divergent_barrier", "unsafe shared_memory", "unsafe uninitialized", "unsafe precision_dropped",
        "unsafe never_launched", "cheating", "not timed", "wrong",
    } <= set(expected)  # fmt: skip


def test_every_file_says_what_the_trick_is() -> None:
    for path in HOSTILE:
        lines = path.read_text().splitlines()
        said = [line for line in lines if line.startswith("// ") and ": " not in line.split(" ", 2)[1]]
        assert lines[0].startswith("// expect: ") and said, path
        assert any(line.startswith("// kind: ") for line in lines[:8]), path


def row(folder: str, verdict: Verified | Wrong | Unsafe | Cheating | Unverified, words: str) -> Row:
    path = next(p for p in (*HOSTILE, *HONEST) if p.parent.name == folder)
    return Row(path, "host", "host", expectations(path), verdict, NotCompiled(""), words, 1.0, 2.0)


def test_the_table_counts_a_wrong_verdict_as_one() -> None:
    passed = Verified(5, 0.0, "host", "add_cpu", ("cases",))
    wrong = Wrong("z", 0, "1", "2", "n=33", 1, 33)
    rows = [row("honest", passed, "verified: 5 cases"), row("honest", wrong, "wrong: z[0] is 1"),
            row("hostile", passed, "verified: 5 cases"), row("hostile", wrong, "wrong: z[0] is 1")]  # fmt: skip
    assert [r.fine for r in rows] == [True, False, False, True]
    assert totals(rows)[1:] == [("honest", "1", "1", "0", "6.0"), ("hostile", "1", "1", "0", "6.0")]
    table = confusion(rows)
    first = expectations(HOSTILE[0]).words[0]
    assert table == [("verified", "verified", 1), ("verified", "wrong", 1), (first, "verified", 1), (first, "wrong", 1)]
    assert as_text(table).splitlines() == [
        "expected  given",
        "verified  verified 1, wrong 1",
        f"{first:8}  verified 1, wrong 1",
    ]
