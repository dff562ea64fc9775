"""Records are judged again by the real worker, on the host; what a card would say is decided by `settled` alone."""

from pathlib import Path

import attrs
import pytest

from dice_lsp.config import Settings
from dice_lsp.dataset.again import WHOLE_FILE, Outcome, job_of, judge_again, settled
from dice_lsp.dataset.cuke import CukeRecord, whole_file_record
from dice_lsp.dataset.exchange import exported, imported
from dice_lsp.records import (
    Ambiguous,
    Comparison,
    Compiled,
    Evidence,
    Faster,
    Judged,
    JudgeJob,
    NotCompared,
    NotTimed,
    Same,
    Slower,
    Timing,
    TimingResult,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
)
from tests.dataset.making import BODY, CARD, DIRECTIVE, RIVAL, VERIFIED, record, source

BUILD = Compiled("sm_90", "nvrtc 13.5", "f", 40, 0, 0, 0, 0, 256, 1.0, "none", 90.0)
HOST = Settings(backend="host")
NOT_TIMED = "verified, and not timed again: no GPU: times need one"


def whole_file() -> CukeRecord:
    found = whole_file_record("Make it fast.", "```python\npass\n```", licence="", source="a.json#0")
    assert isinstance(found, CukeRecord)
    return found


def infilling_record(folder: Path) -> CukeRecord:
    path = folder / "a.json"
    path.write_bytes(exported([record()], "infilling")[0])
    (found,) = imported(path)
    assert isinstance(found, CukeRecord)
    return found


async def test_the_worker_says_what_still_holds(tmp_path: Path) -> None:
    wrong = BODY.replace("2.0f", "3.0f")
    asked = {
        "right": (record(), "", NOT_TIMED),
        "wrong": (record(wrong), "it is wrong: y[0] is", ""),
        "broken": (record(BODY.replace("2.0f", "two")), "it does not compile: line 4:", ""),
        "out of bounds": (record(BODY.replace("if (i < n) ", "")), "it is out of bounds", ""),
        "no reference, right": (record(reference=""), "", NOT_TIMED),
        "no reference, wrong": (record(wrong, reference=""), "it is wrong: y[0] is", ""),
        "launch beside the text": (
            record(directive="", measured=source(BODY), extra=DIRECTIVE), "", NOT_TIMED,
        ),
        "judged for the first time": (infilling_record(tmp_path), "", NOT_TIMED),
        "a whole file": (whole_file(), "", WHOLE_FILE),
        "assembly": (record(BODY + '    asm("exit;");\n'), "the fill holds inline assembly", ""),
        "out of its body": (record(BODY + "}\nvoid f() {"), "the fill ", ""),
        "no kernel": (attrs.evolve(record(), kernel="thrice"), "no such kernel", ""),
    }  # fmt: skip
    told: list[Outcome] = []
    outcomes = await judge_again([each[0] for each in asked.values()], HOST, jobs=2, on_outcome=told.append)
    for (name, (given, dropped, left)), outcome in zip(asked.items(), outcomes, strict=True):
        assert bool(outcome.dropped) == bool(dropped) and dropped in outcome.dropped, (name, outcome)
        assert outcome.left == left, (name, outcome)
        if given.evidence is not None:
            assert outcome.record == given, "what was measured on a card stays as it is"
    assert len(told) == len(asked)
    first = outcomes[list(asked).index("judged for the first time")].record
    assert isinstance(first.verdict, Verified) and first.evidence is not None and first.evidence.device == "host"


def test_the_text_without_the_fill_has_the_reference_and_the_rival() -> None:
    job = job_of(record(), HOST)
    assert isinstance(job, JudgeJob)
    assert job.text == source(BODY) and job.reference_text == job.baseline_text == source(RIVAL)
    assert job.baseline_kernel is not None and source(RIVAL)[job.baseline_kernel.body_start :].startswith(RIVAL)
    alone = job_of(record(rival=""), HOST)
    assert isinstance(alone, JudgeJob) and alone.baseline_text is None and alone.reference_text == source("")


def test_only_a_file_of_this_machine_has_a_project() -> None:
    strange = attrs.evolve(record(), origin="imported", source="/etc/a.cu")
    own = attrs.evolve(record(), origin="editor", source="/nowhere/a.cu")
    jobs = [job_of(each, HOST) for each in (strange, own)]
    assert [job.path for job in jobs if isinstance(job, JudgeJob)] == ["/nonexistent/record.cu", "/nowhere/a.cu"]


TIMED = Timing(10.0, 9.0, 11.0, 100, True, 1980.0, 1.0, "n=1000")
NEW = Evidence("new", "slice", CARD.device, "590", "nvrtc 13.6", "2026-12-01T12:00:00+00:00")


def judged(comparison: Comparison = Faster(3.0, 2.8, 3.2), timing: TimingResult = TIMED, verdict: Verdict = VERIFIED,
           evidence: Evidence = NEW) -> Judged:  # fmt: skip
    return Judged(BUILD, verdict, timing, comparison, evidence)


def test_a_new_measurement_takes_the_place_of_the_old_one() -> None:
    outcome = settled(record(), judged(), 2.0)
    assert (outcome.dropped, outcome.left) == ("", "")
    assert outcome.record == attrs.evolve(record(), comparison=Faster(3.0, 2.8, 3.2), timing=TIMED, evidence=NEW)


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (Faster(2.1, 1.9, 2.3), "1.90x to 2.30x"),
        (Slower(0.8, 0.7, 0.9), "0.80x"),
        (Same(1.0, 0.99, 1.01), "1.00x"),
        (Ambiguous("the clock changed"), "the clock changed"),
    ],
)
def test_what_is_no_longer_as_fast_is_dropped(comparison: Comparison, words: str) -> None:
    outcome = settled(record(), judged(comparison), 2.0)
    assert words in outcome.dropped and "NVIDIA H200" in outcome.dropped and "2x is asked for" in outcome.dropped


@pytest.mark.parametrize("verdict", [Unsafe("race", "line 4", "n=33"), Unverified("its launch is unknown")])
def test_what_is_not_verified_is_dropped_however_fast(verdict: Verdict) -> None:
    assert settled(record(), judged(verdict=verdict), 0.0).dropped


@pytest.mark.parametrize(
    "found",
    [
        judged(timing=NotTimed("the GPU is busy"), comparison=NotCompared("the GPU is busy")),
        judged(NotCompared("the rival does not compile")),
        judged(Slower(0.8, 0.7, 0.9), evidence=attrs.evolve(NEW, device="NVIDIA T4")),
    ],
)
def test_what_could_not_be_held_against_its_time_stays_and_says_so(found: Judged) -> None:
    outcome = settled(record(), found, 2.0)
    assert outcome.record == record() and not outcome.dropped and outcome.left.startswith("verified, and not ")
