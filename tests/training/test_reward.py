"""What a response earns: only what the worker verified earns anything, speed counts by its low end, and tricks earn nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

from dice_lsp.config import Settings
from dice_lsp.records import (
    Ambiguous,
    Cheating,
    Comparison,
    Compiled,
    CompileFailed,
    Evidence,
    Faster,
    Judged,
    JudgeJob,
    NotCompared,
    NotCompiled,
    NotTimed,
    Same,
    Slower,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.training.reward import FULL_SPEED_UP, RIGHT, Referee, Reward, reward_of
from dice_lsp.training.rl_tasks import Place, RlTask, Stage, folder_tasks, place_of
from tests.hostile_table import HOSTILE, expectations

TESTS = Path(__file__).parent.parent
BUILD = Compiled("sm_90", "nvrtc 13.0", "k", 16, 0, 0, 0, 0, 256, 1.0, "none", 1.0)
EVIDENCE = Evidence("", "", "", "", "", "")
COUNTED = Verified(5, 0.1, "NVIDIA H200", "k_cpu", ("poison",))


def judged(verdict: Verdict = COUNTED, comparison: Comparison | None = None, build: object = BUILD) -> Judged:
    return Judged(build, verdict, NotTimed("x"), comparison or NotCompared("x"), EVIDENCE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "value", "kind"),
    [
        (judged(attrs.evolve(COUNTED, device="host")), 1.0, "verified"),
        (judged(), RIGHT, "verified"),
        (judged(comparison=Ambiguous("noise", 3.0)), RIGHT, "verified"),
        (judged(comparison=Same(1.0, 0.99, 1.01)), RIGHT, "verified"),
        (judged(comparison=Slower(0.2, 0.19, 0.21)), RIGHT, "verified"),
        (judged(comparison=Faster(9.0, 2.0, 20.0)), 0.75, "verified"),
        (judged(comparison=Faster(4.1, FULL_SPEED_UP, 4.2)), 1.0, "verified"),
        (judged(comparison=Faster(900.0, 800.0, 1000.0)), 1.0, "verified"),
        (judged(comparison=Faster(2.0, 0.0, 4.0)), RIGHT, "verified"),
        (judged(Wrong("z", 0, "0", "1", "n=1", 1, 1), Faster(9.0, 9.0, 9.0)), 0.0, "wrong"),
        (judged(Unsafe("race", "line 1", ""), Faster(9.0, 9.0, 9.0)), 0.0, "unsafe"),
        (judged(Cheating("memo", ""), Faster(9.0, 9.0, 9.0)), 0.0, "cheating"),
        (judged(Unverified("no reference", ("bounds",)), Faster(9.0, 9.0, 9.0)), 0.0, "unverified"),
        (judged(build=CompileFailed("nvrtc", ())), 0.0, "no_compile"),
        (judged(build=NotCompiled("killed")), 0.0, "unverified"),
    ],
)
def test_only_what_was_verified_earns(said: Judged, value: float, kind: str) -> None:
    reward = reward_of(said)
    assert reward.value == pytest.approx(value) and reward.kind == kind


def test_faster_earns_more_up_to_a_bound() -> None:
    values = [reward_of(judged(comparison=Faster(low + 1, low, low + 2))).value for low in (1.0, 1.2, 1.5, 2, 3, 4, 8)]
    assert values == sorted(values) and values[0] == RIGHT and values[-2:] == [1.0, 1.0]


@pytest.fixture
async def referee() -> AsyncIterator[Referee]:
    made = Referee(Settings(backend="host", run_deadline_s=5.0), 2)
    await made.start()
    yield made
    await made.close()


def filled(path: Path) -> tuple[Place, str]:
    """The place of a file's kernel and the body that stands there."""
    task = folder_task(path)
    place = place_of(task, Stage.GENERATE, 0)
    assert place is not None
    return place, place.region.middle


def folder_task(path: Path) -> RlTask:
    return next(task for task in folder_tasks(path.parent) if task.name == path.stem)


async def test_a_right_body_earns_everything_and_is_judged_once(referee: Referee) -> None:
    place, middle = filled(TESTS / "data" / "textbook" / "saxpy.cu")
    assert await referee.reward(place, middle) == Reward(1.0, "verified")
    assert referee.judged == 1
    assert (await referee.reward(place, f"\n{middle}  ")).value == 1.0 and referee.judged == 1
    assert await referee.reward(place, middle.replace("+ y[i]", "- y[i]")) == Reward(0.0, "wrong")
    assert (await referee.reward(place, middle.replace("y[i]", "y[j]"))).kind == "no_compile"
    assert referee.judged == 3
    for trick in ("", "  \n", "} __global__ void other() {", '\n#include "x.h"\n', 'asm("exit;");'):
        assert await referee.reward(place, trick) == Reward(0.0, "refused")
    assert referee.judged == 3, "what no fill may hold is not compiled"


async def test_what_the_machine_could_not_judge_is_asked_again(referee: Referee) -> None:
    """And a line end that ends a comment is no white space: texts that differ in it are two."""
    answers = [judged(build=NotCompiled("killed")), judged(attrs.evolve(COUNTED, device="host"))]
    asked: list[str] = []

    class Host:
        async def judge(self, job: JudgeJob) -> Judged:
            asked.append(job.text)
            return answers[min(len(asked), 2) - 1]

        async def close(self) -> None: ...

    real, referee._host = referee._host, Host()  # type: ignore[assignment]
    place, middle = filled(TESTS / "data" / "textbook" / "saxpy.cu")
    kinds = [(await referee.reward(place, middle)).kind for _ in range(3)]
    assert kinds == ["unverified", "verified", "verified"] and len(asked) == 2
    for text in ("// note\n" + middle.lstrip(), "// note " + middle.lstrip()):
        await referee.reward(place, text)
    assert len(asked) == 4
    await real.close()


SAMPLE = [path for path in HOSTILE if not expectations(path).host_cannot][::20]


async def test_hostile_bodies_earn_nothing(referee: Referee) -> None:
    """A sample of the hostile kernels on the way that a response takes; `hostile_probe` does it with all of them."""
    assert len(SAMPLE) >= 5
    places = [filled(path) for path in SAMPLE]
    rewards = await asyncio.gather(*(referee.reward(place, middle) for place, middle in places))
    earned = {path.stem: reward for path, reward in zip(SAMPLE, rewards, strict=True) if reward.value}
    assert not earned
    assert len({reward.kind for reward in rewards}) >= 2, "for several reasons"


async def test_on_a_gpu_a_body_must_pass_twice(referee: Referee) -> None:
    """What the emulation cannot see the GPU may, and what only the GPU would let pass never comes there."""
    asked: list[JudgeJob] = []
    answers = [judged(Cheating("times itself", "line 3")), judged(comparison=Faster(3.0, 2.0, 4.0))]

    class Card:
        async def judge(self, job: JudgeJob) -> Judged:
            asked.append(job)
            return answers[len(asked) - 1]

        async def close(self) -> None: ...

    referee._gpus = [Card()]  # type: ignore[list-item]
    referee._free.put_nowait(referee._gpus[0])
    place, middle = filled(TESTS / "data" / "textbook" / "saxpy.cu")
    assert await referee.reward(place, middle) == Reward(0.0, "cheating")
    assert (await referee.reward(place, middle.replace("+ y[i]", "- y[i]"))).kind == "wrong" and len(asked) == 1
    assert await referee.reward(place, middle.replace("a * x[i]", "x[i] * a")) == Reward(0.75, "verified", 2.0)
    job = asked[1]
    assert job.benchmark and job.baseline_text == place.task.baseline and job.reference_text == place.task.text
    assert job.spec == place.spec and "x[i] * a" in job.text and "x[i] * a" not in (job.baseline_text or "")
