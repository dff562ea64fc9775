"""BiC-RL: reinforcement learning of a checkpoint with the worker as the judge. The command is `dice-lsp train rl`.

A step asks the policy for several places, several times each; the worker judges what it answers while it answers the rest;
responses better than their group become likelier and those that are worse less likely, token by token in the states that
they were sampled in (`traces`). Groups of one reward teach nothing and are left out. Published: DICE (arXiv 2602.11715,
section 5) on TraceRL (arXiv 2509.06949), whose constants are the defaults for large checkpoints.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

# Threads that wait by spinning cost a factor of ten where the judges compile on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import attrs
import torch
from attrs import frozen
from torch import Tensor

from dice_lsp.config import Settings
from dice_lsp.dataset.cuke import CukeError
from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import CheckpointError, CheckpointInfo, read
from dice_lsp.diffusion.reveal import Schedule
from dice_lsp.process import ChildDied, ChildError
from dice_lsp.records import DecodeSettings
from dice_lsp.training.reward import UNFINISHED, Referee, Reward, counts
from dice_lsp.training.rl_tasks import Curriculum, Stage, TaskError, place_of, tasks_from
from dice_lsp.training.rollouts import Actor, Asked, Response
from dice_lsp.training.traces import Trace, advantages, batches_of, log_probabilities, policy_loss, trace_row
from dice_lsp.training.trainee import Trainee, TrainingError, load_trainee, save_trained

LARGE = 100_000_000
"""Weights from which on a checkpoint gets the published learning rate."""
LARGE_LR, SMALL_LR = 1e-6, 2e-5
MAX_GRADIENT = 1.0
TRIED = 6
"""Rounds of places that a step asks until enough groups have something to teach."""
MAX_POSITIONS = 4096
"""Prompt and response together; published responses have at most that many tokens."""


@frozen
class Recipe:
    """Everything that decides a run but its tasks and its checkpoint."""

    stage: Stage = Stage.INFILL
    steps: int = 20
    minutes: float | None = None
    """A step that would begin after this long does not."""
    places: int = 16
    """Places of a step whose responses earn differently; others are asked on top, in up to `TRIED` rounds."""
    samples: int = 16
    """Responses to each."""
    updates: int = 2
    """Optimiser steps of a step. From the second on the policy has left the one that was sampled."""
    lr: float = SMALL_LR
    clip: float = 0.2
    beta: float = 0.01
    rounds: int = 0
    """Most states of a block, neighbouring ones merged; 0 keeps all."""
    batch_tokens: int = 16384
    """Tokens of one pass forward and back."""
    seed: int = 1
    save_every: int = 10


@frozen
class Learned:
    """A response as it is learned from."""

    trace: Trace
    advantage: float
    count: int


@frozen
class StepReport:
    """What one step did, as a line of `log.jsonl`."""

    step: int
    reward: float
    """Mean of all responses."""
    verified: float
    """Share of all responses."""
    speed_up: float | None
    """Mean of the measured ones, low ends."""
    asked: int
    """Places."""
    groups: int
    """Those of them that taught something."""
    loss: float | None
    """Mean of the updates; None where no group taught anything."""
    divergence: float | None
    """k3 estimate of how far the updates moved the policy, in nats a token."""
    gradient: float | None
    """Largest norm before it was cut."""
    tokens: int
    """Learned tokens of the responses that taught something."""
    kinds: dict[str, int]
    sampled_s: float
    judged_s: float
    """What was waited for the judge after the last response was sampled."""
    learned_s: float

    def line(self, steps: int) -> str:
        """The report for a person."""
        speed = "" if self.speed_up is None else f"  speed-up {self.speed_up:.2f}x"
        loss = "  nothing to learn" if self.loss is None else f"  loss {self.loss:+.4f}"
        spent = f"{self.sampled_s:.1f} + {self.judged_s:.1f} + {self.learned_s:.1f} s"
        return (
            f"step {self.step + 1} of {steps}  reward {self.reward:.3f}  verified {self.verified:.1%}{speed}{loss}  "
            f"{self.groups} of {self.asked} groups  {spent}  {counts(self.kinds)}"
        )


class Learner:
    """The optimiser and the loss."""

    def __init__(self, trainee: Trainee, recipe: Recipe, schedule: Schedule, checkpointing: bool = False) -> None:
        self._trainee, self._recipe, self._schedule = trainee, recipe, schedule
        self._checkpointing = checkpointing
        self._parameters = list(trainee.learned().values())
        self._optimiser = torch.optim.AdamW(self._parameters, lr=recipe.lr, betas=(0.9, 0.999), weight_decay=0.0)

    def learn(self, responses: Sequence[Learned], step: int) -> tuple[float, float, float]:
        """Update the policy by a step's responses: mean loss of the updates, divergence afterwards, largest gradient."""
        recipe = self._recipe
        order = list(responses)
        random.Random(f"{recipe.seed} {step}").shuffle(order)
        parts = [order[at :: recipe.updates] for at in range(min(recipe.updates, len(order)))]
        prepared = [self._batches(part) for part in parts]
        with torch.no_grad():
            # All before the first update: this is the policy that was sampled.
            old = [[self._log_probabilities(batch)[0] for batch in batches] for batches in prepared]
        losses, gradients = [], []
        device = self._trainee.network.device
        # Every response counts the same, whichever part it came into.
        total = sum(item.count for item in order) / len(parts)
        for part, batches, olds in zip(parts, prepared, old, strict=True):
            advantage = torch.tensor([item.advantage for item in part], device=device)
            weight = torch.tensor([item.count / item.trace.learned / total for item in part], device=device)
            self._optimiser.zero_grad(set_to_none=True)
            loss_sum = 0.0
            for batch, before in zip(batches, olds, strict=True):
                now, response = self._log_probabilities(batch)
                loss = policy_loss(now, before, advantage[response], weight[response], recipe.clip, recipe.beta)
                loss.backward()  # type: ignore[no-untyped-call]
                loss_sum += float(loss.detach())
            gradients.append(float(torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT)))
            losses.append(loss_sum)
            self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return sum(losses) / len(losses), self._divergence(prepared, old), max(gradients)

    def _batches(self, part: Sequence[Learned]) -> list[Tensor]:
        mask_id = self._trainee.network.config.mask_token_id
        rows = [trace_row(item.trace, self._schedule.block_size, mask_id, self._recipe.rounds) for item in part]
        return batches_of(rows, self._recipe.batch_tokens)

    def _log_probabilities(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        network = self._trainee.network
        moved = batch.to(network.device)
        with torch.autocast(network.device.type, torch.bfloat16, enabled=network.device.type == "cuda"):
            again = self._checkpointing and torch.is_grad_enabled()
            return log_probabilities(network, moved, self._schedule.temperature, again)

    @torch.no_grad()
    def _divergence(self, prepared: Sequence[Sequence[Tensor]], old: Sequence[Sequence[Tensor]]) -> float:
        """Of the first part's first batch: a figure to look at, which one pass is enough for."""
        change = self._log_probabilities(prepared[0][0])[0] - old[0][0]
        return float(((-change).exp() - 1 + change).mean())


class Training:
    """One run: the policy, its places and its judge."""

    def __init__(
        self, trainee: Trainee, recipe: Recipe, schedule: Schedule, asked: Sequence[Asked], referee: Referee,
        checkpointing: bool = False,
    ) -> None:  # fmt: skip
        self.trainee, self.recipe = trainee, recipe
        self._referee = referee
        self._actor = Actor(trainee, schedule, recipe.samples)
        self._learner = Learner(trainee, recipe, schedule, checkpointing)
        self._of_place = {item.place.key: item for item in asked}
        self._solved: dict[str, bool] = {}
        self._curriculum = Curriculum([item.place for item in asked])

    async def step(self, number: int) -> StepReport:
        """Sample, judge, learn."""
        learned: list[Learned] = []
        everything: list[Reward] = []
        asked = groups = retired = 0
        sampled_s = judged_s = 0.0
        for _ in range(TRIED):
            # As many as still lack, none twice. Whole rounds, so that the same seed asks the same whoever judges faster.
            count = min(self.recipe.places - groups, len(self._curriculum) - (asked - retired))
            if count <= 0:
                break
            started = time.monotonic()
            judged, waited_s = await self._ask(count, (self.recipe.seed * 1_000_003 + number) * 100_003 + asked)
            asked += count
            judged_s += waited_s
            sampled_s += time.monotonic() - started - waited_s
            for item, responses, rewards in judged:
                values = [reward for reward, one in zip(rewards, responses, strict=True) for _ in range(one.count)]
                everything += values
                scores = advantages([reward.value for reward in values])
                if scores is not None:
                    groups += 1
                    starts = accumulate((response.count for response in responses), initial=0)
                    learned += [
                        Learned(response.trace, scores[start], response.count)
                        for start, response in zip(starts, responses, strict=False)
                        if response.trace.learned
                    ]
                elif values[0].value == 1.0 or (not values[0].value and not await self._solvable(item)):
                    retired += self._curriculum.retire(item.place)
        ended = time.monotonic()
        found = await asyncio.to_thread(self._learn, learned, number) if learned else None
        speeds = [reward.speed_up for reward in everything if reward.speed_up is not None]
        return StepReport(
            step=number,
            reward=sum(reward.value for reward in everything) / len(everything),
            verified=sum(reward.kind == "verified" for reward in everything) / len(everything),
            speed_up=sum(speeds) / len(speeds) if speeds else None,
            asked=asked,
            groups=groups,
            loss=found[0] if found else None,
            divergence=found[1] if found else None,
            gradient=found[2] if found else None,
            tokens=sum(item.trace.learned * item.count for item in learned),
            kinds=dict(Counter(reward.kind for reward in everything)),
            sampled_s=sampled_s,
            judged_s=judged_s,
            learned_s=time.monotonic() - ended,
        )

    async def _ask(self, count: int, seed: int) -> tuple[list[tuple[Asked, list[Response], list[Reward]]], float]:
        """The next places with their responses and rewards, and how long these were waited for after the last response."""
        running: list[tuple[Asked, list[Response], list[asyncio.Task[Reward]]]] = []
        try:
            for index in range(count):
                item = self._of_place[self._curriculum.take().key]
                responses = await asyncio.to_thread(self._actor.sample, item, seed + index)
                tasks = [asyncio.create_task(self._rewarded(item, response)) for response in responses]
                running.append((item, responses, tasks))
            sampled = time.monotonic()
            judged = [(item, responses, await asyncio.gather(*tasks)) for item, responses, tasks in running]
        finally:
            for _, _, tasks in running:
                for task in tasks:
                    task.cancel()
        return judged, time.monotonic() - sampled

    async def _rewarded(self, item: Asked, response: Response) -> Reward:
        return UNFINISHED if response.text is None else await self._referee.reward(item.place, response.text)

    async def _solvable(self, item: Asked) -> bool:
        """Whether the solution that the task brings earns anything: what it is judged by may be at fault."""
        if item.place.key not in self._solved:
            reward = await self._referee.reward(item.place, item.place.region.middle)
            self._solved[item.place.key] = reward.value > 0
            if not reward.value:
                print(f"{item.place.task.name} is left out: its own kernel is {reward.kind}", flush=True)
        return self._solved[item.place.key]

    def _learn(self, learned: Sequence[Learned], number: int) -> tuple[float, float, float]:
        with self._actor.turn():
            found = self._learner.learn(learned, number)
            self._actor.refresh()
        return found


def rollout_schedule(info: CheckpointInfo, asked: DecodeSettings) -> Schedule:
    """How rollouts are decoded: as published, confident tokens together and everything else sampled as it is.

    Raises `CheckpointError` or `ValueError` for a value that the checkpoint cannot take.
    """
    published = DecodeSettings(strategy="low_confidence_dynamic", threshold=0.9, temperature=1.0, top_k=0, top_p=1.0)
    given = attrs.asdict(asked, filter=lambda _, value: value is not None)
    return Schedule.of(info.settings(attrs.evolve(published, **given)))


def asked_places(
    trainee: Trainee, schedule: Schedule, stage: Stage, sources: Sequence[str], count: int, seed: int, prompt_limit: int
) -> list[Asked]:
    """Up to `count` places and their prompts, as many of each source; those whose prompt is longer than `prompt_limit` are left out.

    Raises `TaskError` when none is left.
    """
    info, layout = trainee.info, trainee.layout
    budget = min(prompt_limit, min(info.max_tokens, MAX_POSITIONS) - schedule.max_new_tokens - 2 * schedule.block_size)
    found: dict[str, Asked] = {}
    tasks = [task for source in sources for task in tasks_from(source, -(-count // len(sources)), seed)]
    for task in tasks:
        place = place_of(task, stage, seed, info.layout)
        if place is None or not place.spec.launchable or place.spec.reference is None:
            continue
        try:
            prompt = layout.prompt(place.request, budget)
        except CheckpointError:
            continue
        found[place.key] = Asked(place, tuple(prompt))
    if not found:
        raise TaskError(
            f"none of {len(tasks)} tasks can be asked: a task needs a reference, a launch, and a prompt of at most "
            f"{budget} tokens"
        )
    return list(found.values())


async def run(training: Training, out: Path, about: dict[str, Any]) -> list[StepReport]:
    """All steps of a run; `out` holds the checkpoint after the last and now and then before, and `log.jsonl`."""
    recipe = training.recipe
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    reports: list[StepReport] = []
    with (out / "log.jsonl").open("w", encoding="utf-8") as log:
        for number in range(recipe.steps):
            if recipe.minutes is not None and time.monotonic() - began > recipe.minutes * 60:
                break
            report = await training.step(number)
            reports.append(report)
            print(report.line(recipe.steps), flush=True)
            log.write(json.dumps(attrs.asdict(report)) + "\n")
            log.flush()
            if (number + 1) % recipe.save_every == 0:
                save_trained(out, training.trainee, about | {"steps": number + 1})
    save_trained(out, training.trainee, about | {"steps": len(reports)})
    return reports


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dice-lsp train rl", description="Reinforcement learning with the worker as the judge."
    )
    parser.add_argument("--stage", choices=[stage.value for stage in Stage], default=Stage.INFILL.value)
    parser.add_argument("--model", default="tiny", help="checkpoint to start from: `tiny`, a folder, or a pulled name")
    parser.add_argument("--out", required=True, type=Path, help="folder of the checkpoint that comes out")
    parser.add_argument(
        "--tasks",
        action="append",
        help="`generated` (the families, the default), `grammar`, a folder of .cu files, or a JSON lines file of records; "
        "may be given several times",
    )
    parser.add_argument(
        "--pool", type=int, metavar="N", help="tasks that there are in all; by default twice --steps times --places"
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--minutes", type=float, help="begin no step after this long")
    parser.add_argument("--places", type=int, default=16, help="places of a step whose responses earn differently")
    parser.add_argument("--samples", type=int, default=16, help="responses to each")
    parser.add_argument("--updates", type=int, default=2, help="optimiser steps of a step")
    parser.add_argument(
        "--lr", type=float, help=f"default {SMALL_LR:g}, from {LARGE // 10**6} million weights on {LARGE_LR:g}"
    )
    parser.add_argument("--beta", type=float, default=0.01, help="weight of the divergence from the sampled policy")
    parser.add_argument("--rounds", type=int, default=0, help="most states of a block; 0 keeps all")
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--strategy")
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--max-new-tokens", type=int)
    parser.add_argument("--prompt-limit", type=int, default=2000, help="longer prompts are left out")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters instead of all weights")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations twice to save memory")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="judges on the host")
    parser.add_argument("--backend", default="auto", choices=("auto", "pycuda", "cuda-core", "host"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--run-deadline", type=float, default=10.0, metavar="SECONDS", help="of one case of a kernel")
    parser.add_argument("--seed", type=int, default=1)
    return parser


async def _train(arguments: argparse.Namespace) -> int:
    path = registry.resolve(arguments.model)
    positions = min(read(path, arguments.model).max_tokens, MAX_POSITIONS)
    trainee = load_trainee(path, arguments.device, lora_rank=arguments.lora, positions=positions)
    schedule = rollout_schedule(
        trainee.info,
        DecodeSettings(
            strategy=arguments.strategy, threshold=arguments.threshold, block_size=arguments.block_size,
            temperature=arguments.temperature, max_new_tokens=arguments.max_new_tokens,
        ),
    )  # fmt: skip
    large = trainee.network.config.parameters >= LARGE
    recipe = Recipe(
        stage=Stage(arguments.stage), steps=arguments.steps, minutes=arguments.minutes, places=arguments.places,
        samples=arguments.samples, updates=arguments.updates, lr=arguments.lr or (LARGE_LR if large else SMALL_LR),
        beta=arguments.beta, rounds=arguments.rounds, batch_tokens=arguments.batch_tokens, seed=arguments.seed,
    )  # fmt: skip
    pool = arguments.pool or min(4000, 2 * recipe.steps * recipe.places)
    sources = arguments.tasks or ["generated"]
    asked = asked_places(trainee, schedule, recipe.stage, sources, pool, recipe.seed, arguments.prompt_limit)
    settings = Settings(
        backend=arguments.backend, seed=recipe.seed, run_deadline_s=arguments.run_deadline, compile_deadline_s=30.0
    )
    referee = Referee(settings, arguments.workers)
    try:
        await referee.start()
        print(f"{len(asked)} places, judged on {referee.device} by {arguments.workers} workers", flush=True)
        training = Training(trainee, recipe, schedule, asked, referee, arguments.checkpointing)
        about = {
            "method": f"BiC-RL, stage {recipe.stage}", "base": trainee.info.name, "tasks": sources,
            "places": len(asked), "judge": referee.device,
            "recipe": attrs.asdict(recipe) | {"stage": str(recipe.stage)}, "decode": attrs.asdict(schedule),
        }  # fmt: skip
        reports = await run(training, arguments.out, about)
    finally:
        await referee.close()
    if not reports:
        print("no step was begun: give more --minutes", file=sys.stderr)
        return 1
    print(f"{arguments.out} can fill now: dice-lsp infill --model {arguments.out} FILE.cu", flush=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command `dice-lsp train rl`; returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return asyncio.run(_train(arguments))
    except (CheckpointError, CukeError, TaskError, TrainingError, ValueError, ChildDied, ChildError) as error:
        print(f"dice-lsp train rl: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
