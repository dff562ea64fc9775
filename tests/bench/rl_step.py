"""One step of reinforcement learning of a random network of a published shape: what it takes in time and memory.

`python -m tests.bench.rl_step [--shape dice-1.7b|micro] [--prompts 4] [--samples 8] [--new-tokens 512]` samples responses
to random prompts, gives every second one its praise, and learns from them as `dice-lsp train rl` does. Random weights
cost what trained ones do, but write until the longest length; a real response is shorter.
"""

import argparse
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from dice_lsp.diffusion.checkpoint import CheckpointInfo
from dice_lsp.diffusion.model import SDAR, tiny_config
from dice_lsp.diffusion.reveal import Schedule
from dice_lsp.diffusion.sizes import SDARConfig
from dice_lsp.records import DecodeSettings
from dice_lsp.training.rl import LARGE_LR, Learned, Learner, Recipe
from dice_lsp.training.rollouts import Actor, Asked
from dice_lsp.training.trainee import Trainee

SHAPES = {
    "dice-1.7b": SDARConfig(151936, 2048, 6144, 28, 16, 8, 128),
    "micro": tiny_config(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, block_size=4, mask_token_id=511,
    ),
}  # fmt: skip


class _AnyText:
    """Stands in for a checkpoint's layout: the ids of a random network mean nothing."""

    def reached_suffix(self, request: Any) -> None:
        return None

    def middle(self, request: Any, tokens: Any) -> str:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="dice-1.7b")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=1200)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    config, device = SHAPES[arguments.shape], torch.device(arguments.device)
    began = time.monotonic()
    with torch.device(device):
        network = SDAR(config)
    network.init_weights(seed=1)
    network._grow_rope(min(4096, config.max_position_embeddings))
    size = config.block_size
    decode = DecodeSettings("low_confidence_dynamic", size, size, 0.9, 1.0, 0, 1.0, arguments.new_tokens)
    info = CheckpointInfo(
        arguments.shape, Path("."), "dice", (size,), decode, {}, (), config.mask_token_id, 4096, "float32", {}
    )
    trainee = Trainee(info, network, None, _AnyText())  # type: ignore[arg-type]
    recipe = Recipe(
        samples=arguments.samples, updates=arguments.updates, lr=LARGE_LR, rounds=arguments.rounds,
        batch_tokens=arguments.batch_tokens,
    )  # fmt: skip
    actor = Actor(trainee, Schedule.of(decode), arguments.samples)
    learner = Learner(trainee, recipe, Schedule.of(decode), arguments.checkpointing)
    rng = random.Random(1)
    place: Any = SimpleNamespace(request=None, middle=lambda text: text)
    _wait(device)
    print(
        f"{arguments.shape}: {config.parameters / 1e9:.2f} billion weights, ready in {time.monotonic() - began:.1f} s"
    )
    started = time.monotonic()
    responses = []
    for number in range(arguments.prompts):
        prompt = tuple(rng.randrange(config.vocab_size - 1) for _ in range(arguments.prompt_tokens))
        prompt = tuple(0 if token == config.mask_token_id else token for token in prompt)
        responses += actor.sample(Asked(place, prompt), number)
    _wait(device)
    sampled = time.monotonic()
    tokens = sum(len(response.trace.tokens) * response.count for response in responses)
    learned = [
        Learned(response.trace, 1.0 if at % 2 else -1.0, response.count) for at, response in enumerate(responses)
    ]
    loss, divergence, gradient = learner.learn(learned, 0)
    _wait(device)
    ended = time.monotonic()
    actor.refresh()
    _wait(device)
    print(
        f"sampled {tokens} tokens of {arguments.prompts} x {arguments.samples} responses in {sampled - started:.1f} s: "
        f"{tokens / (sampled - started):.0f} tokens/s"
    )
    print(
        f"learned them in {ended - sampled:.1f} s: {tokens / (ended - sampled):.0f} tokens/s, loss {loss:+.5f}, "
        f"divergence {divergence:.2e}, gradient {gradient:.2f}; weights to the sampler in {time.monotonic() - ended:.2f} s"
    )
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
