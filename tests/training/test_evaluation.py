"""Estimates are unbiased, samples are judged as what they are, and the command says what it lacks."""

import asyncio
import itertools
import json
import statistics
from pathlib import Path

import pytest

from dice_lsp.__main__ import main
from dice_lsp.config import Settings
from dice_lsp.diffusion.checkpoint import CheckpointError
from dice_lsp.records import (
    Comparison,
    CompileFailed,
    DecodeSettings,
    Evidence,
    Faster,
    Judged,
    JudgeJob,
    NotCompared,
    NotTimed,
    Slower,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.training.evaluation import Evaluation, Outcome, TaskScore, as_json, as_markdown, by_family, pass_at, score
from dice_lsp.training.fill_tasks import FillTask
from dice_lsp.training.sampling import Samples
from tests.reports import BUILD

TEXT = """void twice_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = 2.0f * x[i];
}
//dice: n = 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void twice(const float* x, float* y, int n) {
}
"""
TASK = FillTask("twice", "map", "/t/twice.cu", TEXT, "twice", "\n    // plain\n")


@pytest.mark.parametrize(("samples", "right", "k"), [(5, 2, 1), (5, 2, 3), (8, 1, 8), (6, 0, 2), (4, 4, 2)])
def test_pass_at_k_is_the_mean_over_all_ways_to_draw(samples: int, right: int, k: int) -> None:
    outcomes = [True] * right + [False] * (samples - right)
    drawn = [any(chosen) for chosen in itertools.combinations(outcomes, k)]
    assert pass_at(k, samples, right) == pytest.approx(statistics.fmean(drawn))


def test_pass_at_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="raise --samples"):
        pass_at(8, 4, 1)


def result(kinds: str, *lows: float | None, family: str = "f") -> TaskScore:
    names = {"v": "verified", "w": "wrong", "n": "no compile", "u": "unfinished"}
    outcomes = tuple(
        Outcome(names[kind], low, low) for kind, low in itertools.zip_longest(kinds, lows) if kind is not None
    )
    return TaskScore(f"{family}-{kinds}", family, outcomes, outcomes[0])


def test_figures_give_each_task_the_same_weight() -> None:
    found = score([result("vvwn", 3.0, 1.5), result("u"), result("vv", 0.9, None)], timed=True)
    assert found.pass_at_1 == pytest.approx((0.5 + 0 + 1) / 3)
    assert found.verified == pytest.approx(2 / 3) and found.greedy == pytest.approx(2 / 3)
    assert found.compiled == pytest.approx(5 / 7)
    assert found.fast_1 == pytest.approx((2 / 4 + 0 + 0) / 3) and found.fast_2 == pytest.approx((1 / 4 + 0 + 0) / 3)
    assert found.fast_2_any == pytest.approx(1 / 3)
    assert found.pass_at_8 is None and found.ends == {"verified": 4, "wrong": 1, "no compile": 1, "unfinished": 1}
    untimed = score([result("v" * 8)], timed=False)
    assert (untimed.pass_at_8, untimed.fast_1, untimed.fast_2) == (1.0, None, None)


def test_reports_say_everything_and_families_apart() -> None:
    results = [result("vw", family="a"), result("ww", family="b")]
    assert {name: item.pass_at_1 for name, item in by_family(results, False).items()} == {"a": 0.5, "b": 0.0}
    about = {"model": "m", "samples": 2}
    found = json.loads(as_json(about, {"heldout": results}, False))
    assert found["sets"]["heldout"]["all"]["pass_at_1"] == 0.25 and len(found["sets"]["heldout"]["tasks"]) == 2
    table = as_markdown(about, {"heldout": results}, False)
    assert "| **all** | 2 | 25.0% | - | 50.0% | 100.0% | 50.0% | - | - |" in table and "needs a GPU" in table


class FakeSampler:
    name, parameters, device = "fake", 1, "cpu"

    def __init__(self, greedy: str | None, *drawn: str | None) -> None:
        self.written = Samples(greedy, drawn)

    def samples(self, *_: object, **__: object) -> Samples:
        return self.written


class FakeJudges:
    """Judges by the words of a body; remembers its jobs."""

    on_gpu, times, device = True, True, "a GPU"

    def __init__(self) -> None:
        self.jobs: list[JudgeJob] = []

    async def judge(self, job: JudgeJob) -> Judged:
        self.jobs.append(job)
        evidence = Evidence("", "", self.device, "", "", "")
        compiled = BUILD
        verdict: Verdict = Verified(3, 0.1, self.device, "twice_cpu", ())
        comparison: Comparison = NotCompared("not timed")
        if "broken" in job.text:
            failed = CompileFailed("nvrtc", ())
            return Judged(failed, Unverified(""), NotTimed(""), comparison, evidence)
        if "lucky" in job.text and job.seed >= 1000:
            verdict = Wrong("y", 0, "1", "2", "n=1", 1, 1)
        if "wrong" in job.text:
            verdict = Wrong("y", 0, "1", "2", "n=1", 1, 1)
        if job.benchmark:
            assert job.baseline_text == TASK.solved()
            comparison = Faster(3.0, 2.5, 3.5) if "fast" in job.text else Slower(0.5, 0.4, 0.6)
            verdict = Wrong("y", 0, "1", "2", "n=1", 1, 1) if "races" in job.text else Unverified("only timed")
        return Judged(compiled, verdict, NotTimed(""), comparison, evidence)


def evaluated(judges: FakeJudges, greedy: str | None, *drawn: str | None, twice: bool = False) -> TaskScore:
    evaluation = Evaluation(
        FakeSampler(greedy, *drawn),  # type: ignore[arg-type]
        judges,  # type: ignore[arg-type]
        Settings(),
        samples=len(drawn),
        decode=DecodeSettings(),
        twice=twice,
    )
    (found,) = asyncio.run(evaluation.run([TASK]))
    return found


def body(words: str) -> str:
    return f"\n    // {words}\n    y[0] = x[0];\n"


def test_samples_end_as_what_they_are() -> None:
    judges = FakeJudges()
    drawn = [
        body("fast"),
        body("fast"),
        body("slow"),
        body("wrong"),
        body("broken"),
        body("races"),
        None,
        "\n asm(); \n",
        " ",
    ]
    found = evaluated(judges, body("slow"), *drawn)
    assert [item.kind for item in found.samples] == [
        "verified", "verified", "verified", "wrong", "no compile", "wrong", "unfinished", "refused", "refused",
    ]  # fmt: skip
    assert [item.low for item in found.samples[:3]] == [2.5, 2.5, 0.4] and found.greedy.kind == "verified"
    assert found.faster_than(1.0) == found.faster_than(2.0) == 2 and found.right == 3
    # Equal samples are judged once, and the reference never comes from what a sample wrote.
    assert len([job for job in judges.jobs if not job.benchmark]) == 5
    assert all(job.reference_text == TEXT for job in judges.jobs)


def test_a_second_judgement_can_overturn_the_first() -> None:
    assert evaluated(FakeJudges(), None, body("lucky")).right == 1
    found = evaluated(FakeJudges(), None, body("lucky"), body("slow"), twice=True)
    assert [item.kind for item in found.samples] == ["overturned", "verified"]


def test_a_checkpoint_that_refuses_a_task_is_no_group_of_errors() -> None:
    class Refusing(FakeSampler):
        def samples(self, *_: object, **__: object) -> Samples:
            raise CheckpointError("too long")

    evaluation = Evaluation(
        Refusing(None),  # type: ignore[arg-type]
        FakeJudges(),  # type: ignore[arg-type]
        Settings(),
        samples=1,
        decode=DecodeSettings(),
    )
    with pytest.raises(CheckpointError, match="twice: too long"):
        asyncio.run(evaluation.run([TASK, TASK]))


def test_the_command_evaluates_the_shipped_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "found.json"
    options = ["--samples", "2", "--limit", "1", "--backend", "host", "--json", str(target), "--workers", "1"]
    assert main(["eval", "--set", "textbook", *options, "--model", "tiny"]) == 0
    assert "| block_dot | 1 |" in capsys.readouterr().out
    found = json.loads(target.read_text())
    (task,) = found["sets"]["textbook"]["tasks"]
    assert len(task["samples"]) == 2 and task["greedy"]["kind"] == "verified"
    assert found["sets"]["textbook"]["all"]["fast_2"] is None and found["judged_on"] == "host"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "nothing"], "there is no set nothing"),
        (["textbook", "--tasks", "/nowhere"], "is no folder"),
        (["--samples", "0"], "must be at least 1"),
    ],
)
def test_the_command_says_what_it_lacks(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *options]) == 2
    assert said in capsys.readouterr().err
