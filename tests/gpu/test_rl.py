"""Reinforcement on a card: the reward knows fast from slow, and a step of the shipped checkpoint goes through."""

import asyncio

import torch

from dice_lsp.config import Settings
from dice_lsp.diffusion import registry
from dice_lsp.diffusion.fast import FastNetwork
from dice_lsp.records import DecodeSettings
from dice_lsp.training.families import make_pair
from dice_lsp.training.reward import RIGHT, Referee, Reward
from dice_lsp.training.rl import Learned, Learner, Recipe, Training, asked_places, rollout_schedule
from dice_lsp.training.rl_tasks import RlTask, Stage, place_of
from dice_lsp.training.rollouts import Actor
from dice_lsp.training.trainee import load_trainee
from tests.gpu.support import record


def test_a_fast_body_earns_more_than_the_plain_one() -> None:
    pairs = [make_pair(seed, family="row sum") for seed in (1, 2)]

    async def rewards() -> list[Reward]:
        referee = Referee(Settings(), 4)
        try:
            await referee.start()
            assert referee.device != "host"
            asked = []
            for pair in pairs:
                task = RlTask(pair.name, pair.family, pair.kernel, pair.file(pair.plain), pair.file(pair.plain))
                place = place_of(task, Stage.GENERATE, 0)
                assert place is not None
                asked += [referee.reward(place, body) for body in (pair.plain, pair.fast[0].body)]
            return list(await asyncio.gather(*asked))
        finally:
            await referee.close()

    found = asyncio.run(rewards())
    record("rewards of plain and fast bodies", *(f"{item.value:.2f} {item.kind} {item.speed_up}" for item in found))
    assert all(item.kind == "verified" for item in found)
    for plain, fast in (found[:2], found[2:]):
        assert RIGHT <= plain.value < RIGHT + 0.15
        assert fast.value > plain.value


def test_the_sampling_copy_has_the_policys_probabilities_and_follows_it() -> None:
    trainee = load_trainee(registry.resolve("tiny"), "cuda", positions=2048)
    schedule = rollout_schedule(trainee.info, DecodeSettings(max_new_tokens=128))
    actor = Actor(trainee, schedule, 4)
    assert isinstance(actor._network, FastNetwork)
    (item, *_) = asked_places(trainee, schedule, Stage.GENERATE, ["generated"], 4, 3, 2000)
    responses = actor.sample(item, 1)
    assert sum(response.count for response in responses) == 4
    before = {name: weight.clone() for name, weight in actor._copy.named_parameters()}  # type: ignore[union-attr]
    learner = Learner(trainee, Recipe(lr=1e-3), schedule)
    learned = [Learned(response.trace, 1.0, response.count) for response in responses]
    loss, divergence, gradient = learner.learn(learned, 0)
    actor.refresh()
    record("a step of the shipped checkpoint", f"{loss:.4f}", f"{divergence:.2e}", f"{gradient:.2f}")
    assert gradient > 0
    after = dict(actor._copy.named_parameters())  # type: ignore[union-attr]
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())
    again = actor.sample(item, 2)
    assert sum(response.count for response in again) == 4


def test_a_whole_step() -> None:
    trainee = load_trainee(registry.resolve("tiny"), "cuda", positions=2048)
    schedule = rollout_schedule(trainee.info, DecodeSettings(max_new_tokens=160, temperature=1.4))
    asked = asked_places(trainee, schedule, Stage.INFILL, ["generated"], 16, 3, 2000)

    async def step() -> str:
        referee = Referee(Settings(), 8)
        try:
            await referee.start()
            training = Training(trainee, Recipe(places=2, samples=8), schedule, asked, referee)
            return (await training.step(0)).line(1)
        finally:
            await referee.close()

    torch.cuda.reset_peak_memory_stats()
    line = asyncio.run(step())
    record("a step with its judge", line, f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    assert "verified" in line
