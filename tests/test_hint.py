"""The table of the README, row by row: what the user reads in which state."""

import base64
import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.hint import (
    MAX_LABEL,
    candidate_title,
    duration,
    evidence_table,
    fill_hint,
    history_markdown,
    kernel_hint,
    shorten,
    verdict_words,
)
from dice_lsp.records import (
    Ambiguous,
    Candidate,
    CandidateReport,
    Cheating,
    CompileFailed,
    CompileMessage,
    DecodeStats,
    Faster,
    FillReport,
    NotCompared,
    NotCompiled,
    Same,
    Slower,
    Unsafe,
    Unverified,
    Wrong,
)
from tests.reports import (
    BUILD,
    EVIDENCE,
    HOST_EVIDENCE,
    NO_GPU,
    ON_GPU,
    ON_HOST,
    SPEC,
    TIMING,
    baseline,
    measurement,
    report,
)

FAILED = CompileFailed("nvrtc 13.5", (CompileMessage(8, 4, "error", "x"), CompileMessage(9, 4, "error", "y")))
ELSEWHERE = NotCompared(
    "the baseline was accepted on NVIDIA A100, this is NVIDIA H200; accept again here", "other device"
)


def on_host(**figures):
    """A check without a GPU of a kernel that has a baseline."""
    build = attrs.evolve(BUILD, **figures)
    return report(build=build, verdict=ON_HOST, evidence=HOST_EVIDENCE, comparison=ELSEWHERE, baseline=baseline())


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
        (report(timing=TIMING, comparison=ELSEWHERE, baseline=baseline()), "12.3 us  other device  verified"),
        (report(timing=TIMING, comparison=NotCompared("x", "other launch")), "12.3 us  other launch  verified"),
        (on_host(registers=48, occupancy=0.75), "48 regs (+8)  occ 75%  verified on host"),
        (on_host(registers=32), "32 regs (-8)  occ 100%  verified on host"),
        (on_host(registers=168, occupancy=0.375), "168 regs (+128)  verified on host"),
        (on_host(registers=48, spill_store_bytes=16), "48 regs  spills 16 B  verified on host"),
        (on_host(registers=255, spill_store_bytes=12345), "255 regs  spills 12 KB  verified on host"),
        (on_host(registers=40), "40 regs  occ 100%  verified on host"),
        (on_host(registers=48, compiler="nvcc 13.0"), "48 regs  occ 100%  verified on host"),
        (
            attrs.evolve(on_host(registers=48, spill_load_bytes=4), verdict=Unverified("being checked")),
            "48 regs (+8)  spills 4 B  checking",
        ),
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
        "poison",
        "guards on both sides of every buffer, one side at a time",
        "H200",
        "driver 580",
        "1.410 to 1.430",
    ):
        assert words in table


def test_the_hover_says_what_qualifies_a_time():
    note = "2 samples left out while the GPU slowed itself down"
    assert f"| note on the time | {note} |" in evidence_table(report(timing=attrs.evolve(TIMING, notes=(note,))))
    assert "note on the time" not in evidence_table(report(timing=TIMING))


def test_the_hover_says_how_the_kernels_process_was_confined():
    given = report(timing=TIMING)
    assert "ran under" not in evidence_table(given)
    confined = attrs.evolve(given, evidence=attrs.evolve(given.evidence, isolation="seccomp, limits (no landlock)"))
    assert evidence_table(confined).endswith("; it ran under seccomp, limits (no landlock)")


def rows_of(table):
    """The two columns of the first table in a hover."""
    lines = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in table.split("\n\n")[1].splitlines()
        if line.startswith("| ")
    ]
    return {cells[0]: cells[1] for cells in lines if len(cells) == 2}


def test_the_hover_names_the_baseline_and_what_changed_since():
    kept = baseline(build=attrs.evolve(BUILD, registers=32, occupancy=0.5, spill_load_bytes=8))
    rows = rows_of(evidence_table(report(timing=TIMING, comparison=Slower(0.885, 0.88, 0.89), baseline=kept)))
    assert rows["registers"] == "40, was 32"
    assert rows["spills"] == "0 B stores, 0 B loads, was 8 B"
    assert rows["occupancy"].endswith(", was 50%") and "was" not in rows["shared memory"]
    assert rows["baseline"] == (
        "accepted 2026-11-30 12:00 UTC on NVIDIA H200, driver 580, timed again beside this version: about 10.9 us now"
    )
    assert rows["against the baseline"] == "1.13x slower (ratio 0.880 to 0.890)"


def test_what_is_known_without_a_race_says_so():
    same = Same(1.0, 1.0, 1.0, note="the machine code is the same")
    given = report(timing=TIMING, comparison=same, baseline=baseline())
    rows = rows_of(evidence_table(given))
    assert rows["against the baseline"] == "same: the machine code is the same"
    assert rows["baseline"] == "accepted 2026-11-30 12:00 UTC on NVIDIA H200, driver 580"
    assert kernel_hint(given).label == "12.3 us  same  verified"


def test_a_comparison_that_is_not_settled_says_why():
    rows = rows_of(evidence_table(report(timing=TIMING, comparison=Ambiguous("noisy"), baseline=baseline())))
    assert rows["against the baseline"] == "ambiguous: noisy" and rows["baseline"].endswith("beside this version")


def test_the_hover_says_why_nothing_was_compared():
    rows = rows_of(evidence_table(on_host(registers=48)))
    assert rows["baseline"] == "accepted 2026-11-30 12:00 UTC on NVIDIA H200, driver 580"
    assert rows["against the baseline"] == f"not compared: {ELSEWHERE.reason}"
    assert rows["registers"] == "48, was 40"
    first = report(baseline=baseline("first", evidence=HOST_EVIDENCE, verdict=ON_HOST, timing=NO_GPU))
    assert rows_of(evidence_table(first))["baseline"] == "first verified version, 2026-11-30 12:00 UTC on host"
    assert "baseline" not in rows_of(evidence_table(report(timing=TIMING)))


def history(*times, **fields):
    return [measurement(number, median_us=time, **fields) for number, time in enumerate(times)]


def test_the_history_is_a_chart_and_a_line():
    assert history_markdown((), None, svg=False) == "" == history_markdown((), baseline(), svg=True)
    text = history_markdown(history(13.9, 11.9, 12.3), None, svg=False)
    assert text == "█▁▂  12.3 us now, 11.9 us best, 3 checks since 2026-11-02"
    assert history_markdown(history(12.3), None, svg=False).endswith(
        "12.3 us now, 12.3 us best, 1 check since 2026-11-02"
    )


def test_the_history_ends_at_30():
    line = history_markdown(history(1.0, *[12.0] * 35), None, svg=False)
    assert line.endswith("12.0 us now, 12.0 us best, 30 checks since 2026-11-02") and line.startswith("▅" * 30 + " ")


def test_only_what_has_one_scale_is_in_the_chart():
    found = [
        *history(1.0, device="NVIDIA A100"),
        *history(2.0, launch_key="larger"),
        *history(3.0, cold=False),
        *history(12.0, 12.3),
    ]
    assert history_markdown(found, None, svg=False).endswith("12.3 us now, 12.0 us best, 3 checks since 2026-11-02")


def test_a_newest_check_without_a_time_says_so():
    wrong = [*history(12.0, 12.3), measurement(2, median_us=None, verdict="wrong", registers=255)]
    assert "wrong now, 12.0 us best, 3 checks" in history_markdown(wrong, None, svg=False)
    busy = [*history(12.0), measurement(1, median_us=None)]
    assert "not timed now, 12.0 us best, 2 checks" in history_markdown(busy, None, svg=False)


def test_without_any_time_the_chart_is_of_registers():
    untimed = [measurement(n, median_us=None, device="host", registers=r) for n, r in enumerate((32, 40, 48))]
    line = history_markdown(untimed, None, svg=False)
    assert line == (
        "▁▅█  48 regs now, 32 regs fewest, 3 checks since 2026-11-02; registers, because nothing was timed here"
    )
    elsewhere = attrs.evolve(untimed[0], arch="sm_80", registers=200)
    assert history_markdown([elsewhere, *untimed], None, svg=False) == line


def picture_of(markdown):
    packed = re.match(r"!\[[\w ]+\]\(data:image/svg\+xml;base64,([\w+/=]+)\)\n\n", markdown)
    assert packed is not None
    return base64.b64decode(packed[1]).decode(), markdown[packed.end() :]


def test_the_picture_of_the_history():
    kept = baseline(timing=attrs.evolve(TIMING, median_us=13.0))
    found = history(13.9, 12.3, launch_key=kept.launch_key)
    picture, line = picture_of(history_markdown(found, kept, svg=True))
    assert line == "12.3 us now, 12.3 us best, 2 checks since 2026-11-02; dashed: the baseline, 13.0 us"
    assert "stroke-dasharray" in picture and "13.9 us" in picture and "12.3 us now" in picture


@pytest.mark.parametrize(
    "kept",
    [
        baseline(evidence=attrs.evolve(EVIDENCE, device="NVIDIA A100")),
        baseline(spec=attrs.evolve(SPEC, block=("128", "1", "1"))),
        baseline(timing=NO_GPU),
        baseline(timing=attrs.evolve(TIMING, cold=False)),
        None,
    ],
)
def test_a_baseline_without_that_scale_is_not_drawn(kept):
    found = history(13.9, 12.3, launch_key=baseline().launch_key)
    picture, line = picture_of(history_markdown(found, kept, svg=True))
    assert "dasharray" not in picture and "dashed" not in line


def test_the_picture_of_registers_has_the_baselines():
    untimed = [measurement(n, median_us=None, device="host", registers=r) for n, r in enumerate((48, 56))]
    picture, line = picture_of(history_markdown(untimed, baseline(), svg=True))
    assert line.endswith("dashed: the baseline, 40 regs") and "56 regs" in picture
    other = baseline(evidence=attrs.evolve(EVIDENCE, toolkit="nvrtc 12.0"))
    assert "dashed" not in history_markdown(untimed, other, svg=True)


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


@given(
    st.integers(1, 255), st.integers(1, 255), st.sampled_from([0, 4, 999, 1000, 99000]), st.floats(0, 1), st.sampled_from([ON_HOST, ON_GPU])
)  # fmt: skip
def test_the_registers_and_the_verdict_are_in_every_static_label(before, now, spill_bytes, occupancy, verdict):
    build = attrs.evolve(BUILD, registers=now, spill_store_bytes=spill_bytes, occupancy=occupancy)
    kept = baseline(build=attrs.evolve(BUILD, registers=before))
    label = kernel_hint(report(build=build, verdict=verdict, baseline=kept)).label
    assert len(label) <= MAX_LABEL and label.startswith(f"{now} regs") and label.endswith(verdict_words(verdict, SPEC))
    assert ("(" in label) <= (before != now)
    assert "spills" in label or not spill_bytes


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [(0.87, "870 ns"), (12.34, "12.3 us"), (999.4, "999 us"), (1530, "1.53 ms"), (2.5e6, "2.50 s")],
)
def test_durations_have_three_digits(microseconds, words):
    assert duration(microseconds) == words
