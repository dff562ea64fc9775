"""Pairs become records only with a measured speed-up."""

import asyncio
from pathlib import Path

import pytest

from dice_lsp.config import Settings
from dice_lsp.dataset.cuke import read_records, write_records
from dice_lsp.records import Evidence, Faster, Judged, JudgeJob, NotCompared, NotTimed, Unverified, Verified, Wrong
from dice_lsp.source.kernels import parse
from dice_lsp.training.families import make_pair
from dice_lsp.training.pairs import main, measure
from tests.reports import BUILD

FAMILIES = ["row sum", "transpose"]


class FakeJudges:
    """Every body is right; how much faster it is depends on the family."""

    on_gpu, times, device = True, True, "a GPU"

    async def judge(self, job: JudgeJob) -> Judged:
        evidence = Evidence("key", "slice", self.device, "1", "13", "2026-12-01T00:00:00+00:00")
        if not job.benchmark:
            right = Verified(3, 0.1, self.device, "a reference", ())
            wrong = Wrong("y", 0, "1", "2", "n=1", 1, 1)
            return Judged(
                BUILD, wrong if "smem[32]" in job.text else right, NotTimed(""), NotCompared(""), evidence, job.spec
            )
        assert job.baseline_text is not None and parse(job.baseline_text).kernels
        ratio = Faster(4.0, 3.9, 4.1) if "tile[32][33]" in job.text else Faster(1.9, 1.8, 2.5)
        return Judged(BUILD, Unverified("only timed"), NotTimed(""), ratio, evidence, job.spec)


def test_only_what_is_fast_enough_for_certain_is_kept(tmp_path: Path) -> None:
    found = asyncio.run(measure(FakeJudges(), Settings(), 5, 0, 2.0, FAMILIES))  # type: ignore[arg-type]
    assert len(found.records) >= 5
    assert {record.source.rpartition("-")[0] for record in found.records} == {"transpose"}
    assert found.ends["not fast enough"] > 0 and found.ends["kept"] >= len(found.records)
    for record in found.records:
        pair = make_pair(int(record.source.rpartition("-")[2]), family="transpose")
        assert record.text == pair.file(record.middle) and record.rival == pair.plain
        assert record.verified and record.speedup == 3.9 and record.origin == "generated"
    path = tmp_path / "pairs.jsonl"
    write_records(path, found.records)
    assert read_records(path) == found.records


def test_it_ends_when_nothing_is_fast_enough() -> None:
    found = asyncio.run(measure(FakeJudges(), Settings(), 3, 0, 2.0, ["row sum"]))  # type: ignore[arg-type]
    assert found.records == () and found.drawn == 12


def test_without_a_gpu_nothing_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "pairs.jsonl"
    assert main(["--count", "1", "--out", str(target), "--backend", "host", "--workers", "1"]) == 2
    assert "no speed-up can be measured without a GPU" in capsys.readouterr().err
    assert not target.exists()
