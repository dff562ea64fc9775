"""The table of the README, row by row: what the user reads in which state."""

import attrs
import pytest

from dice_lsp.hint import MAX_LABEL, candidate_title, duration, evidence_table, fill_hint, kernel_hint, shorten
from dice_lsp.records import (
    Ambiguous,
    Candidate,
    CandidateReport,
    Cheating,
    Compiled,
    CompileFailed,
    CompileMessage,
    DecodeStats,
    Evidence,
    Faster,
    FillReport,
    KernelReport,
    LaunchSpec,
    NotCompared,
    NotCompiled,
    NotTimed,
    Same,
    Slower,
    Timing,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)

BUILD = Compiled("sm_90", "nvrtc 13.5", "saxpy", 40, 0, 0, 0, 0, 256, 1.0, "none", 90.0)
SPEC = LaunchSpec("saxpy", grid=("1", "1", "1"), block=("256", "1", "1"))
EVIDENCE = Evidence("key", "slice", "NVIDIA H200", "580", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")
ON_GPU = Verified(6, 0.1, "NVIDIA H200", "saxpy_cpu", ("poison", "bounds"))
ON_HOST = attrs.evolve(ON_GPU, device="host")
TIMING = Timing(12.3, 12.2, 12.4, 30, True, 1980.0, 0.8, "n=1048576", roof="memory", roof_fraction=0.71)
NO_GPU = NotTimed("no GPU")


def report(build=BUILD, verdict=ON_GPU, timing=NO_GPU, comparison=NotCompared("no baseline"), spec=SPEC):
    return KernelReport("saxpy", 7, spec, build, verdict, timing, comparison, EVIDENCE)


FAILED = CompileFailed("nvrtc 13.5", (CompileMessage(8, 4, "error", "x"), CompileMessage(9, 4, "error", "y")))
WRONG = Wrong("z", 4096, "0", "1.5", "n=5000", 904, 5000)


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (report(verdict=Unverified("being checked")), "40 regs  occ 100%  checking"),
        (report(timing=TIMING), "12.3 us  71% of memory roof  verified"),
        (report(timing=TIMING, comparison=Slower(1 / 1.13, 0.88, 0.89)), "12.3 us  1.13x slower  verified"),
        (report(timing=TIMING, comparison=Faster(1.42, 1.41, 1.43)), "12.3 us  1.42x faster  verified"),
        (report(timing=TIMING, comparison=Same(1.0, 0.99, 1.01)), "12.3 us  same  verified"),
        (report(timing=TIMING, comparison=Ambiguous("noisy")), "12.3 us  ambiguous  verified"),
        (report(verdict=ON_HOST), "40 regs  occ 100%  verified on host"),
        (report(verdict=Unverified("no reference", ("bounds",))), "40 regs  occ 100%  no reference"),
        (report(verdict=WRONG), "wrong: z[4096] is 0, expected 1.5"),
        (report(verdict=Unsafe("out_of_bounds", "x[1000] of 1000", "n=1000")), "out of bounds: x[1000] of 1000"),
        (report(verdict=Cheating("stateful_result", "answer kept")), "refused: stateful result: answer kept"),
        (report(build=FAILED, verdict=Unverified("-")), "does not compile: 2 errors"),
        (report(build=NotCompiled("no compiler is there")), "not compiled: no compiler is there"),
        (
            report(verdict=Unverified("x"), spec=attrs.evolve(SPEC, unknown=("the grid is not known",))),
            "40 regs  occ 100%  launch unknown",
        ),
        (report(build=attrs.evolve(BUILD, spill_store_bytes=8, spill_load_bytes=8)), "40 regs  spills 16 B  verified"),
    ],
)
def test_the_label_of_each_state(given, label):
    hint = kernel_hint(given)
    assert hint.label == label and hint.line == 7 and len(label) <= MAX_LABEL


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (report(timing=TIMING), "stale: 12.3 us"),
        (report(verdict=ON_HOST), "stale: 40 regs"),
        (report(build=FAILED), "stale"),
    ],
)
def test_a_stale_result_says_so(given, label):
    hint = kernel_hint(given, stale=True)
    assert hint.label == label and "text has changed" in hint.tooltip


def test_the_hover_has_the_evidence():
    table = evidence_table(report(timing=TIMING, comparison=Faster(1.42, 1.41, 1.43)))
    for words in (
        "12.3 us (12.2 us to 12.4 us), cold",
        "saxpy_cpu",
        "poison, bounds",
        "H200",
        "driver 580",
        "1.410 to 1.430",
    ):
        assert words in table


def candidate(label, **parts):
    made = {"build": BUILD, "verdict": ON_HOST, "timing": NO_GPU, "comparison": NotCompared("no GPU")}
    return CandidateReport(label, Candidate("text", -0.1, 10, 12), **{**made, **parts})


def test_the_hint_of_a_fill_names_each_candidate_that_fits():
    timed = {"verdict": ON_GPU, "timing": TIMING}
    found = FillReport(
        DecodeStats(800.0, 40, 300, "tiny", "cpu"),
        (
            candidate("A", comparison=Faster(1.42, 1.4, 1.44), **timed),
            candidate("B", comparison=Same(1.0, 0.99, 1.01), **timed),
            candidate("C", verdict=WRONG),
        ),
    )
    assert fill_hint(found, 3).label == "A 1.42x  B same  C wrong"
    many = FillReport(None, tuple(candidate(label) for label in "ABCDEFGH"))
    assert fill_hint(many, 3).label == "A verified  B verified  C verified  +5"
    assert fill_hint(FillReport(None, (), "the model is not there"), 3).label == "the model is not there"


def test_the_title_of_a_candidate_says_what_it_is_worth():
    assert candidate_title(candidate("A")) == "A  verified on host  40 regs"
    timed = candidate("A", verdict=ON_GPU, timing=TIMING, comparison=Faster(1.42, 1.4, 1.44))
    assert candidate_title(timed) == "A  1.42x faster  12.3 us  verified  40 regs"
    unwritten = Unsafe("unwritten_output", "z: 32 of 1000 elements", "n=1000")
    assert candidate_title(candidate("B", verdict=unwritten)) == "B  unwritten output: z: 32 of 1000 elements"
    assert candidate_title(candidate("C", build=FAILED)) == "C  does not compile: x"


def test_labels_never_grow_past_the_limit():
    assert len(shorten("x" * 100)) == MAX_LABEL
    long = report(verdict=Wrong("a_very_long_buffer_name", 1234567890, "1.234567e-30", "nan", "", 1, 1))
    assert len(kernel_hint(long).label) <= MAX_LABEL


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [(0.87, "870 ns"), (12.34, "12.3 us"), (999.4, "999 us"), (1530, "1.53 ms"), (2.5e6, "2.50 s")],
)
def test_durations_have_three_digits(microseconds, words):
    assert duration(microseconds) == words
