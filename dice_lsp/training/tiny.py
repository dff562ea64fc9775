"""Train the shipped checkpoint: block diffusion on generated kernels, from nothing, in about ten minutes on one H200.

    python -m dice_lsp.training.tiny --out DIR --seconds 500 [--real functions.jsonl.gz]

Runs on a CPU too (micro sizes, for tests): then attention takes a dense mask instead of flex attention.
"""

import argparse
import gzip
import json
import math
import multiprocessing
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from attrs import frozen
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from dice_lsp.diffusion.layout_psm import MASK, spell
from dice_lsp.diffusion.model import SDAR, SDARConfig, tiny_config
from dice_lsp.training.examples import Example, make_example
from dice_lsp.training.export import export, load
from dice_lsp.training.muon import Muon
from dice_lsp.training.packing import Packer, as_tensors, visible
from dice_lsp.training.real_code import real_example
from dice_lsp.training.tokenizer import train_tokenizer

HELD_OUT_SEED = 1 << 40
"""Seeds from here on are never trained on."""
SEEDS_PER_WORKER = 1 << 32


@frozen
class Recipe:
    """Everything that decides a training run."""

    seconds: float
    rows: int = 32
    row_length: int = 2048
    muon_lr: float = 0.02
    adam_lr: float = 3e-3
    warmup_steps: int = 100
    decay_from: float = 0.55
    """Fraction of the time after which the rates fall linearly to a twentieth."""
    real_share: float = 0.12
    workers: int = 12
    vocab_size: int = 2048
    seed: int = 1
    max_steps: int | None = None
    save_every_s: float = 150.0


def synthetic(first_seed: int) -> Callable[[], Example]:
    """Examples of the seeds from `first_seed` on."""
    counter = iter(range(first_seed, first_seed + SEEDS_PER_WORKER))
    return lambda: make_example(next(counter))


def mixture(first_seed: int, functions: list[str], real_share: float) -> Callable[[], Example | None]:
    """Generated examples with a share of real ones among them."""
    draw = synthetic(first_seed)
    rng = random.Random(first_seed)

    def example() -> Example | None:
        if functions and rng.random() < real_share:
            return real_example(rng.choice(functions), rng)
        return draw()

    return example


def read_functions(path: Path | None) -> list[str]:
    if path is None:
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def make_tokenizer(vocab_size: int, functions: list[str], samples: int = 3000) -> Tokenizer:
    """The tokenizer, from generated and real words."""
    lines = []
    for seed in range(samples):
        example = make_example(HELD_OUT_SEED * 2 + seed)
        lines.append(_spelled(example))
    rng = random.Random(0)
    for function in functions:
        real = real_example(function, rng)
        if real is not None:
            lines.append(_spelled(real))
    return train_tokenizer(lines, vocab_size)


def _spelled(example: Example) -> str:
    prompt = example.prompt
    return spell(prompt.prefix) + spell(prompt.suffix) + spell(example.words(prompt))


def _produce(packer: Packer, recipe: Recipe, functions: list[str], worker: int, rows: int, out: Any) -> None:
    """Body of a data process: rows by the handful into the queue, for ever."""
    torch.set_num_threads(1)
    os.nice(5)
    seed = (recipe.seed * 32 + worker) * SEEDS_PER_WORKER % HELD_OUT_SEED
    examples = mixture(seed, functions, recipe.real_share)
    source = packer.rows(examples, random.Random(seed))
    while True:
        out.put(np.stack([next(source) for _ in range(rows)], 1))


def batches(packer: Packer, recipe: Recipe, functions: list[str]) -> Iterator[Tensor]:
    """Endless batches `[6, rows, T]` int16, made by `workers` processes, or in this one with none."""
    if recipe.workers == 0:
        source = packer.rows(mixture(recipe.seed, functions, recipe.real_share), random.Random(recipe.seed))
        while True:
            yield torch.from_numpy(np.stack([next(source) for _ in range(recipe.rows)], 1))
    context = multiprocessing.get_context("fork")
    part = math.gcd(recipe.rows, 16)
    parts: Any = context.Queue(maxsize=8 * recipe.workers)
    for worker in range(recipe.workers):
        context.Process(target=_produce, args=(packer, recipe, functions, worker, part, parts), daemon=True).start()
    ready: queue.Queue[Tensor] = queue.Queue(maxsize=8)

    def assemble() -> None:
        while True:
            ready.put(torch.from_numpy(np.concatenate([parts.get() for _ in range(recipe.rows // part)], 1)))

    threading.Thread(target=assemble, daemon=True).start()
    while True:
        yield ready.get()


class Masks:
    """Attention masks of a batch: flex block masks on CUDA, dense ones elsewhere."""

    def __init__(self, rows: int, length: int, device: torch.device, flex: bool) -> None:
        self.flex = flex
        # The mask function reads these buffers, so that one compiled graph serves every batch.
        self.document, self.copy, self.block = (
            torch.zeros(rows, length, dtype=torch.int32, device=device) for _ in range(3)
        )
        self.create = torch.compile(create_block_mask) if flex else None
        self.length = length
        document, copy, block = self.document, self.copy, self.block

        def pointwise(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            """`packing.visible` for one pair of tokens."""
            same = document[row, query] == document[row, key]
            earlier = (copy[row, key] == 0) & (block[row, key] < block[row, query])
            own = (copy[row, query] == copy[row, key]) & (block[row, query] == block[row, key])
            return same & (earlier | own)

        self.pointwise = pointwise

    def __call__(self, batch: Tensor) -> "Tensor | BlockMask":
        if self.create is None:
            return visible(batch[2], batch[3], batch[4])
        self.document.copy_(batch[2])
        self.copy.copy_(batch[3])
        self.block.copy_(batch[4])
        made: BlockMask = self.create(
            self.pointwise, batch.shape[1], None, self.length, self.length, device=str(batch.device)
        )
        return made


def loss_of(network: SDAR, hidden_of: Callable[..., Tensor], batch: Tensor, masks: Masks) -> Tensor:
    """Mean cross-entropy over the masked tokens of a batch `[6, N, T]`."""
    targets = batch[5]
    chosen = targets > 0
    hidden = hidden_of(batch[0], batch[1], masks(batch))
    logits = network.logits(hidden[chosen])
    return F.cross_entropy(logits.float(), targets[chosen] - 1)


def optimisers(network: SDAR, recipe: Recipe) -> list[torch.optim.Optimizer]:
    matrices = [
        parameter for name, parameter in network.named_parameters() if parameter.dim() == 2 and "embed" not in name
    ]
    others = [parameter for name, parameter in network.named_parameters() if parameter.dim() != 2 or "embed" in name]
    return [
        Muon(matrices, lr=recipe.muon_lr, weight_decay=0.01),
        torch.optim.AdamW(others, lr=recipe.adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=others[0].is_cuda),
    ]


def rate(step: int, progress: float, recipe: Recipe) -> float:
    """Factor of both learning rates: warm-up by steps, flat, then linear decay by time."""
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    if progress <= recipe.decay_from:
        return warm
    return warm * max(0.02, (1 - progress) / (1 - recipe.decay_from))


def train(
    recipe: Recipe,
    config: SDARConfig,
    packer: Packer,
    functions: list[str],
    device: torch.device,
    folder: Path | None,
    start: Path | None = None,
) -> tuple[SDAR, list[float]]:
    """Train a network for `recipe.seconds`; returns it and the loss of every twentieth step."""
    source = batches(packer, recipe, functions)
    first = next(source)
    network = SDAR(config)
    network.init_weights(seed=recipe.seed)
    if start is not None:
        parts = sorted(start.glob("full-*.safetensors"))
        weights = {name: tensor for part in parts for name, tensor in load_file(part).items()} or load(start)
        network.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    network = network.to(device)
    flex = device.type == "cuda"
    masks = Masks(recipe.rows, recipe.row_length, device, flex)
    hidden_of: Callable[..., Tensor] = torch.compile(network.hidden_train) if flex else network.hidden_train
    if flex:
        torch.set_float32_matmul_precision("high")
        try:
            with torch.autocast("cuda", torch.bfloat16):
                loss_of(network, hidden_of, first.to(device, torch.int64), masks).backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            import traceback

            traceback.print_exc()
            print(
                f"flex attention does not compile here ({type(error).__name__}: {str(error)[:300]}), dense masks instead",
                flush=True,
            )
            masks = Masks(recipe.rows, recipe.row_length, device, False)
            hidden_of = network.hidden_train
        network.zero_grad()
    steppers = optimisers(network, recipe)
    bases = [stepper.param_groups[0]["lr"] for stepper in steppers]
    losses: list[float] = []
    began = time.monotonic()
    saved = began
    step = 0
    average = torch.zeros((), device=device)
    for batch in source:
        elapsed = time.monotonic() - began
        progress = elapsed / recipe.seconds if recipe.max_steps is None else step / recipe.max_steps
        if progress >= 1:
            break
        factor = rate(step, progress, recipe)
        for stepper, base in zip(steppers, bases, strict=True):
            stepper.param_groups[0]["lr"] = base * factor
        moved = batch.pin_memory().to(device, non_blocking=True) if flex else batch
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(network, hidden_of, moved.long(), masks)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
        network.zero_grad(set_to_none=True)
        average += loss.detach()
        step += 1
        if step % 20 == 0:
            losses.append(float(average) / 20)
            average.zero_()
        if step % 400 == 0:
            print(
                f"step {step}  {elapsed:.0f} s  loss {sum(losses[-20:]) / len(losses[-20:]):.4f}  rate {factor:.3f}",
                flush=True,
            )
        if folder is not None and time.monotonic() - saved > recipe.save_every_s:
            saved = time.monotonic()
            export(folder, config, network.qwen3_weights(), packer.tokenizer)
    print(f"{step} steps in {time.monotonic() - began:.0f} s", flush=True)
    return network, losses


@torch.no_grad()
def held_out_accuracy(
    network: SDAR, packer: Packer, functions: list[str], device: torch.device, rows: int = 32
) -> dict[str, list[float]]:
    """Share of masked tokens guessed right: `synthetic 8` -> `[whole block masked, half masked]`, for every block size."""
    network.eval()
    result: dict[str, list[float]] = {}
    for size in packer.block_sizes:
        for name in ("synthetic", "real") if functions else ("synthetic",):
            accuracies = []
            for ratio in (1.0, 0.5):
                rng = random.Random(size)
                examples: Callable[[], Example | None] = synthetic(HELD_OUT_SEED)
                if name == "real":
                    pick = random.Random(7)
                    examples = lambda pick=pick: real_example(pick.choice(functions), pick)  # type: ignore[misc]  # noqa: E731
                source = packer.rows(examples, rng, size, ratio)
                right = total = 0
                for _ in range(max(1, rows // 8)):
                    batch = as_tensors([next(source) for _ in range(8)], device)
                    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                        logits = network.forward_train(
                            batch[0], batch[1], visible(batch[2], batch[3], batch[4]), batch[5] > 0
                        )
                    targets = batch[5][batch[5] > 0] - 1
                    right += int((logits.argmax(-1) == targets).sum())
                    total += len(targets)
                accuracies.append(round(right / total, 4))
            result[f"{name} {size}"] = accuracies
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """The command `dice-lsp train`."""
    parser = argparse.ArgumentParser(prog="dice-lsp train", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--real", type=Path, help="functions.jsonl.gz of dice_lsp.training.real_code")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to keep instead of a new one")
    parser.add_argument("--start", type=Path, help="a folder to continue from")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=max(0, min(14, (os.cpu_count() or 1) - 2)))
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--decay-from", type=float, default=0.55)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--real-share", type=float, default=0.12)
    parser.add_argument("--accuracy-rows", type=int, default=32)
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    functions = read_functions(arguments.real)
    random.Random(3).shuffle(functions)
    kept_out, functions = functions[: len(functions) // 30], functions[len(functions) // 30 :]
    recipe = Recipe(
        seconds=arguments.seconds, workers=arguments.workers, rows=arguments.rows, max_steps=arguments.steps, seed=arguments.seed,
        muon_lr=arguments.muon_lr, adam_lr=arguments.adam_lr, decay_from=arguments.decay_from, real_share=arguments.real_share,
    )  # fmt: skip
    if arguments.tokenizer:
        tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    else:
        tokenizer = make_tokenizer(recipe.vocab_size, functions)
    packer = Packer(tokenizer, recipe.row_length)
    vocab = -(-tokenizer.get_vocab_size() // 64) * 64
    config = tiny_config(
        vocab_size=vocab, mask_token_id=tokenizer.token_to_id(MASK), num_hidden_layers=arguments.layers
    )
    device = torch.device(arguments.device)
    network, losses = train(recipe, config, packer, functions, device, arguments.out, arguments.start)
    export(arguments.out, config, network.qwen3_weights(), tokenizer)
    print(f"exported after {time.monotonic() - began:.0f} s", flush=True)
    halves = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in network.qwen3_weights().items()}
    names = sorted(halves)
    for part in (0, 1):
        save_file({name: halves[name] for name in names[part::2]}, arguments.out / f"full-{part}.safetensors")
    accuracy = held_out_accuracy(network, packer, kept_out, device, arguments.accuracy_rows)
    for name, values in accuracy.items():
        print(f"{name}: whole block {values[0]:.4f}, half masked {values[1]:.4f}", flush=True)
    (arguments.out / "log.json").write_text(
        json.dumps({"losses": losses, "accuracy": accuracy, "seconds": time.monotonic() - began})
    )


if __name__ == "__main__":
    main()
