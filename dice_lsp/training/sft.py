"""Tune a checkpoint on verified fills and generated kernels: `dice-lsp train sft --model tiny --data FILE --out DIR`.

The loss is `block_diffusion`'s, the order of the data `sft_data`'s. A run that was stopped goes on with `--resume` as if
it had not been: weights, optimiser, place in the data and random state are those of the step it stopped at.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import define, frozen
from torch import Tensor

from dice_lsp.diffusion.checkpoint import CheckpointError
from dice_lsp.diffusion.registry import resolve
from dice_lsp.training.block_diffusion import Batch, Corruption, Noise, Objective, Row
from dice_lsp.training.muon import Muon
from dice_lsp.training.processes import Processes
from dice_lsp.training.sft_data import (
    HELD_OUT_RUN,
    Place,
    Plan,
    Stream,
    parts_of,
    source_named,
)
from dice_lsp.training.tiny import Masks
from dice_lsp.training.trainee import Trainee, TrainingError, load_trainee, save_trained

STATE = "state.pt"
LOG = "log.jsonl"
LARGE = 500_000_000
"""Weights from which on a network is tuned as the published recipe does it."""
MAY_CHANGE = {"steps", "minutes", "epochs", "workers", "save_every_min", "log_every", "validate_every", "tensorboard",
              "keep_state"}  # fmt: skip
"""What may differ between a run and its resumption without changing a step that both have."""


@frozen
class Recipe:
    """Everything that decides a run. `None` is replaced by what fits the checkpoint (`completed`)."""

    model: str
    data: tuple[tuple[str, float], ...] = (("generated", 1.0),)
    """Sources and their shares: `generated`, `pairs`, or a file of CuKe records."""
    steps: int | None = None
    minutes: float | None = None
    epochs: float | None = None
    rows: int | None = None
    """Rows of a step, over all processes."""
    micro_rows: int | None = None
    """Rows of a forward pass; gradients of several are added up to a step."""
    row_length: int | None = None
    cutoff: int | None = None
    block_sizes: tuple[int, ...] | None = None
    copies: int | None = None
    noise: str = Noise.COUNTED
    optimiser: str | None = None
    lr: float | None = None
    muon_lr: float = 0.005
    warmup_steps: int | None = None
    decay_from: float = 1.0
    """Fraction of the run after which the rate falls linearly to a fiftieth; 1 keeps it constant, as published."""
    lora_rank: int = 0
    checkpointing: bool | None = None
    seed: int = 1
    chunk: int = 256
    workers: int = 0
    save_every_min: float = 10.0
    log_every: int = 10
    validate_every: int = 0
    validation: str | None = None
    tensorboard: bool = False
    keep_state: bool = True

    def completed(self, trainee: Trainee, processes: int) -> "Recipe":
        """With a value for everything. Raises `TrainingError` for values that do not fit each other."""
        large = trainee.network.config.parameters >= LARGE
        whole_files = trainee.info.layout == "dice"
        optimiser = self.optimiser or ("adamw" if large or self.lora_rank or whole_files else "muon")
        # The published rate for whole fine-tuning; adapters and small networks bear more.
        lr = 1e-5 if large and not self.lora_rank else 1e-4 if self.lora_rank else 5e-4
        recipe = attrs.evolve(
            self,
            rows=self.rows or max(16, processes),
            micro_rows=self.micro_rows or (1 if large else max(1, (self.rows or 16) // processes)),
            row_length=self.row_length or (8192 if whole_files else 2048),
            cutoff=self.cutoff or (6144 if whole_files else 704),
            block_sizes=self.block_sizes
            or ((trainee.info.block_sizes[0],) if whole_files else trainee.info.block_sizes),
            copies=self.copies or (1 if whole_files else 2),
            optimiser=optimiser,
            lr=self.lr or lr,
            # Three hundredths of the run, as published, when its length is known.
            warmup_steps=self.warmup_steps
            if self.warmup_steps is not None
            else max(1, -(-3 * (self.steps or 700) // 100)),
            checkpointing=large if self.checkpointing is None else self.checkpointing,
        )
        assert recipe.rows is not None and recipe.micro_rows is not None and recipe.block_sizes is not None
        if recipe.rows % (recipe.micro_rows * processes):
            raise TrainingError(
                f"{recipe.rows} rows are no multiple of {recipe.micro_rows} rows of a pass times {processes} processes: "
                "choose another --rows"
            )
        strange = [size for size in recipe.block_sizes if size not in trainee.info.block_sizes]
        if strange:
            known = ", ".join(map(str, sorted(trainee.info.block_sizes)))
            raise TrainingError(f"block size {strange[0]} is not one of {trainee.info.name}: choose from {known}")
        assert recipe.cutoff is not None
        if recipe.cutoff + max(recipe.block_sizes) > trainee.info.max_tokens:
            raise TrainingError(
                f"samples of {recipe.cutoff} tokens are longer than the {trainee.info.max_tokens} positions of "
                f"{trainee.info.name}: choose a smaller --cutoff"
            )
        if recipe.optimiser not in ("adamw", "muon"):
            raise TrainingError(f"optimiser {recipe.optimiser!r} is unknown: choose adamw or muon")
        if recipe.optimiser == "muon" and recipe.lora_rank:
            raise TrainingError("adapters are too thin for muon: choose --optimiser adamw")
        if self.steps is None and self.minutes is None and self.epochs is None:
            raise TrainingError("nothing says when to end: give --steps, --minutes or --epochs")
        return recipe


@frozen
class Result:
    """How a run ended."""

    steps: int
    losses: tuple[float, ...]
    """Of every step of this process's life, over all processes."""
    tokens_per_s: float
    peak_gib: float
    """GPU memory that was allocated at most; 0 on a CPU."""
    interrupted: bool


def plan_of(recipe: Recipe, trainee: Trainee) -> Plan:
    """The rows of a completed recipe."""
    assert recipe.row_length and recipe.cutoff and recipe.block_sizes and recipe.copies
    return Plan(
        parts=parts_of(recipe.data, lambda name: source_named(name, recipe.seed), recipe.chunk),
        layout=trainee.layout,
        corruption=Corruption(
            block_sizes=recipe.block_sizes,
            mask_id=trainee.info.mask_id,
            fill_id=trainee.layout.fill_id,
            copies=recipe.copies,
            # Decoding stops at the first end token: what our own layout fills a block with hardly matters. The
            # published recipe trains it like any other token.
            fill_weight=0.25 if trainee.info.layout == "psm" else 1.0,
            noise=Noise(recipe.noise),
        ),
        seed=recipe.seed,
        row_length=recipe.row_length,
        cutoff=recipe.cutoff,
        epochs=recipe.epochs,
    )


def validation_rows(recipe: Recipe, plan: Plan, rows: int) -> list[Row]:
    """Rows that no step trains on, the same for ever: of the validation file, or of the generator's held-out seeds."""
    name = recipe.validation
    if name is None:
        named = [source for source, _ in recipe.data if not Path(source).is_file()]
        if not named:
            return []
        name = named[0]
    held_out = attrs.evolve(
        plan,
        parts=parts_of([(name, 1.0)], lambda found: source_named(found, HELD_OUT_RUN), 16 * rows),
        seed=0,
        epochs=None,
    )
    return list(itertools.islice((row for row, _ in Stream(held_out, Place())), rows))


def optimisers(trainee: Trainee, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """AdamW for all, or Muon for the matrices inside the layers and AdamW for the rest."""
    assert recipe.lr is not None
    learned = trainee.learned()
    inner = [
        weight
        for name, weight in learned.items()
        if recipe.optimiser == "muon" and weight.dim() == 2 and "embed" not in name and "lm_head" not in name
    ]
    held = {id(weight) for weight in inner}
    others = [weight for weight in learned.values() if id(weight) not in held]
    found: list[torch.optim.Optimizer] = []
    if inner:
        found.append(Muon(inner, lr=recipe.muon_lr))
    if others:
        fused = others[0].is_cuda
        found.append(torch.optim.AdamW(others, lr=recipe.lr, betas=(0.9, 0.999), weight_decay=0.0, fused=fused))
    return found


def rate(step: int, progress: float, recipe: Recipe) -> float:
    """Factor of the learning rates: warm-up by steps, flat, then perhaps a linear decay."""
    assert recipe.warmup_steps is not None
    warm = min(1.0, (step + 1) / max(1, recipe.warmup_steps))
    if progress <= recipe.decay_from or recipe.decay_from >= 1:
        return warm
    return warm * max(0.02, (1 - progress) / (1 - recipe.decay_from))


@define
class Run:
    """One run: what it has come to, and everything it needs for the next step."""

    recipe: Recipe
    trainee: Trainee
    processes: Processes
    out: Path
    say: Callable[[str], None]
    objective: torch.nn.Module
    masks: Masks
    steppers: list[torch.optim.Optimizer]
    fingerprint: dict[str, Any]
    place: Place = attrs.field(factory=Place)
    step: int = 0
    elapsed_s: float = 0.0
    """Of all lives of the run, without loading."""

    @classmethod
    def begin(
        cls, recipe: Recipe, out: Path, device: str, resume: bool = False, say: Callable[[str], None] = print
    ) -> "Run":
        """Load the checkpoint, and the state of the run when it is to go on. Raises `TrainingError` and `CheckpointError`."""
        if recipe.tensorboard:
            _tensorboard()
        processes = Processes.start(device)
        if (out / STATE).exists() and not resume:
            raise TrainingError(f"{out} holds a run already: add --resume to go on with it, or choose another --out")
        if resume and not (out / STATE).is_file():
            raise TrainingError(f"{out} holds no {STATE}, so there is no run to go on with: leave out --resume")
        path = resolve(recipe.model)
        trainee = load_trainee(path, processes.device, recipe.lora_rank, (recipe.cutoff or 6144) + 64)
        recipe = recipe.completed(trainee, processes.count)
        assert recipe.micro_rows and recipe.row_length
        flex = processes.device.type == "cuda"
        masks = Masks(recipe.micro_rows, recipe.row_length, processes.device, flex)
        objective = processes.shared(Objective(trainee.network, bool(recipe.checkpointing), flex))
        run = cls(
            recipe, trainee, processes, out, say, objective, masks, optimisers(trainee, recipe), _fingerprint(recipe)
        )
        if resume:
            run._restore()
        return run

    def train(self) -> Result:
        """Steps until the recipe's end or an interrupt; then the state and the checkpoint are written."""
        recipe, device = self.recipe, self.processes.device
        assert recipe.rows is not None and recipe.row_length is not None
        plan = plan_of(recipe, self.trainee)
        held_out = validation_rows(recipe, plan, recipe.rows) if recipe.validate_every else []
        self.out.mkdir(parents=True, exist_ok=True)
        log = _Log(self.out, self.step, recipe.tensorboard) if self.processes.first else None
        before, began = self.elapsed_s, time.monotonic()
        saved = began
        sums: list[Tensor] = []
        losses: list[float] = []
        tokens = shown_tokens = 0
        shown_at = began
        first_step_s = factor = 0.0
        steps = self.step
        with _interrupts() as interrupted, contextlib.closing(_steps(plan, self.place, recipe)) as source:
            for rows, place in source:
                if device.type == "cuda" and self.step == steps:
                    self._compile(rows)
                self.elapsed_s = before + time.monotonic() - began
                progress = self._progress()
                if self.processes.any(progress >= 1 or bool(interrupted)):
                    break
                factor = rate(self.step, progress, recipe)
                sums.append(self._step(rows, factor))
                self.step += 1
                self.place = place
                filled = sum(row.filled for row in rows)
                tokens += filled
                if self.step == steps + 1:
                    # The first step compiles; the speed is that of the others.
                    float(sums[0])
                    first_step_s, tokens, shown_at = time.monotonic() - began, 0, time.monotonic()
                    shown_tokens = 0
                if self.step % recipe.log_every == 0 or self.step == steps + 1:
                    now = time.monotonic()
                    speed = (tokens - shown_tokens) / max(now - shown_at, 1e-9) if tokens else 0.0
                    shown_tokens, shown_at = tokens, now
                    losses += self._report(sums, log, factor, speed)
                    sums.clear()
                if held_out and self.step % recipe.validate_every == 0:
                    value = self.validation_loss(held_out)
                    if log is not None:
                        log.write_validation(self.step, value)
                        self.say(f"step {self.step}  validation {value:.4f}")
                if time.monotonic() - saved > 60 * recipe.save_every_min:
                    self.save_state()
                    saved = time.monotonic()
            stopped = bool(interrupted)
        self.elapsed_s = before + time.monotonic() - began
        if sums:
            losses += self._report(sums, log, factor, tokens / max(time.monotonic() - began - first_step_s, 1e-9))
        if self.step == steps == 0:
            raise TrainingError(
                f"no step was made: {recipe.rows} rows of at most {recipe.cutoff} tokens a sample do not come together; "
                "give more records, fewer --rows or a larger --cutoff"
            )
        peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
        speed = tokens / max(time.monotonic() - began - first_step_s, 1e-9)
        result = Result(self.step, tuple(losses), speed, peak, stopped)
        self.save_state()
        self.export(result)
        if log is not None:
            log.close()
        return result

    def _report(self, sums: Sequence[Tensor], log: "_Log | None", factor: float, tokens_per_s: float) -> list[float]:
        """Write down the losses of the last steps, and return them."""
        losses = [float(value) for value in sums]
        if log is not None:
            log.write(self.step, losses, factor * float(self.recipe.lr or 0), tokens_per_s)
            self.say(
                f"step {self.step}  loss {sum(losses) / len(losses):.4f}  rate x{factor:.3f}  "
                f"{tokens_per_s:.0f} tokens/s  {self.elapsed_s:.0f} s"
            )
        return losses

    def _progress(self) -> float:
        done = 0.0
        if self.recipe.steps is not None:
            done = self.step / self.recipe.steps
        if self.recipe.minutes is not None:
            done = max(done, self.elapsed_s / (60 * self.recipe.minutes))
        return done

    def _step(self, rows: Sequence[Row], factor: float) -> Tensor:
        """One step of the optimiser over `rows`, of which each process takes its share; the loss over all of them."""
        recipe, processes = self.recipe, self.processes
        assert recipe.micro_rows is not None
        divisor = max(sum(row.weight for row in rows), 1.0)
        own = rows[processes.rank :: processes.count]
        total = torch.zeros((), device=processes.device)
        for at in range(0, len(own), recipe.micro_rows):
            more = at + recipe.micro_rows < len(own)
            with processes.without_exchange(self.objective, more):
                loss = self._loss(Batch.of(own[at : at + recipe.micro_rows], processes.device)) / divisor
                # Gradients are averaged over the processes, but the divisor is already that of all of them.
                (loss * processes.count).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(list(self.trainee.learned().values()), 1.0)
        for stepper in self.steppers:
            for group in stepper.param_groups:
                group["lr"] = factor * group.setdefault("base_lr", group["lr"])
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        return processes.sum(total)

    def _compile(self, rows: Sequence[Row]) -> None:
        """Compile flex attention on a first batch; where that fails, train on with dense masks and say so."""
        recipe = self.recipe
        assert recipe.micro_rows is not None and recipe.row_length is not None
        device = self.processes.device
        try:
            self._loss(Batch.of(rows[: recipe.micro_rows], device)).backward()  # type: ignore[no-untyped-call]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers raise whatever their parts do
            self.say(
                "flex attention does not compile here, so masks are dense and steps slower: "
                f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            )
            self.masks = Masks(recipe.micro_rows, recipe.row_length, device, False)
            self.objective = self.processes.shared(Objective(self.trainee.network, bool(recipe.checkpointing)))
        self.trainee.network.zero_grad(set_to_none=True)

    def _loss(self, batch: Batch, alone: bool = False) -> Tensor:
        device = self.processes.device
        objective = getattr(self.objective, "module", self.objective) if alone else self.objective
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss: Tensor = objective(batch, self.masks(batch.fields))
        return loss

    def validation_loss(self, rows: Sequence[Row]) -> float:
        """The mean loss over rows with a fixed noise; every process computes all of it."""
        assert self.recipe.micro_rows is not None
        total = 0.0
        size = self.recipe.micro_rows
        whole = rows[: len(rows) // size * size]
        for at in range(0, len(whole), size):
            # With gradients, which nobody takes: without them everything would be compiled a second time. And past the
            # wrapper of several processes, which would wait for the backward pass.
            total += float(self._loss(Batch.of(whole[at : at + size], self.processes.device), alone=True).detach())
        return total / max(sum(row.weight for row in whole), 1.0)

    def save_state(self) -> None:
        """Everything that the next step depends on, in place of an older state at once."""
        if self.processes.first and self.recipe.keep_state:
            self.out.mkdir(parents=True, exist_ok=True)
            state = {
                "step": self.step,
                "elapsed_s": self.elapsed_s,
                "place": [self.place.chunk, self.place.row],
                "recipe": json.dumps(self.fingerprint, sort_keys=True),
                "weights": {name: weight.detach() for name, weight in self.trainee.learned().items()},
                "optimisers": [stepper.state_dict() for stepper in self.steppers],
                "random": torch.get_rng_state(),
            }
            fresh = self.out / f"{STATE}.new"
            torch.save(state, fresh)
            fresh.replace(self.out / STATE)
        self.processes.wait()

    def _restore(self) -> None:
        try:
            state = torch.load(self.out / STATE, map_location=self.processes.device, weights_only=True)
        except Exception as error:  # an unpickler raises many kinds; all mean that the file is damaged
            raise TrainingError(f"{self.out / STATE} cannot be read, so the run cannot go on: {error}") from error
        then, now = json.loads(state["recipe"]), json.loads(json.dumps(self.fingerprint))
        for name in sorted(then.keys() | now.keys()):
            if then.get(name) != now.get(name):
                raise TrainingError(
                    f"{self.out} was begun with {name} {then.get(name)!r}, not {now.get(name)!r}: a run goes on only as it "
                    "began"
                )
        learned = self.trainee.learned()
        with torch.no_grad():
            for name, weight in state["weights"].items():
                learned[name].copy_(weight)
        for stepper, kept in zip(self.steppers, state["optimisers"], strict=True):
            stepper.load_state_dict(kept)
        torch.set_rng_state(state["random"].cpu())
        self.step, self.elapsed_s, self.place = state["step"], state["elapsed_s"], Place(*state["place"])

    def export(self, result: Result) -> None:
        """The checkpoint as it is now, to fill with."""
        if self.processes.first:
            recent = result.losses[-20:]
            about = {
                "method": "supervised fine-tuning, block diffusion",
                "base": self.recipe.model,
                "data": [f"{name} ({share:g})" for name, share in self.recipe.data],
                "steps": result.steps,
                "seconds": round(self.elapsed_s),
                "seed": self.recipe.seed,
                "loss": round(sum(recent) / max(len(recent), 1), 4),
                "recipe": self.fingerprint,
            }
            save_trained(self.out, self.trainee, about)
        self.processes.wait()


def _steps(plan: Plan, place: Place, recipe: Recipe) -> Generator[tuple[list[Row], Place], None, None]:
    """Rows of one step after another, each with the place behind it. The rest that fills no step is left out."""
    assert recipe.rows is not None
    rows: list[Row] = []
    for row, after in Stream(plan, place, recipe.workers):
        rows.append(row)
        if len(rows) == recipe.rows:
            yield rows, after
            rows = []


def _fingerprint(recipe: Recipe) -> dict[str, Any]:
    """What two lives of one run must share: the recipe, and what its files hold."""
    fixed = {name: value for name, value in attrs.asdict(recipe).items() if name not in MAY_CHANGE}
    for name, _ in recipe.data:
        if Path(name).is_file():
            fixed[f"sha256 of {name}"] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return fixed


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The first interrupt or termination ends the run after its step, with everything saved; a second one at once."""
    seen: list[int] = []
    previous: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        signal.signal(number, previous[number])

    with contextlib.suppress(ValueError):  # only the main thread may set handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, note)
    try:
        yield seen
    finally:
        for caught, handler in previous.items():
            signal.signal(caught, handler)


def _tensorboard() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainingError(
            "--tensorboard needs the package tensorboard: run `pip install 'dice-lsp[train]'`"
        ) from None
    return SummaryWriter


class _Log:
    """The curves: `log.jsonl`, and TensorBoard's files when asked for. A run that goes on drops what came after its state."""

    def __init__(self, out: Path, step: int, tensorboard: bool) -> None:
        kept = []
        if step and (out / LOG).is_file():
            kept = [line for line in (out / LOG).read_text().splitlines() if json.loads(line)["step"] <= step]
        (out / LOG).write_text("".join(line + "\n" for line in kept))
        self._file = open(out / LOG, "a", encoding="utf-8", buffering=1)
        self._board = _tensorboard()(str(out / "tensorboard"), purge_step=step + 1) if tensorboard else None

    def write(self, step: int, losses: Sequence[float], lr: float, tokens_per_s: float) -> None:
        """The losses of the last steps, `step` being the last."""
        for at, loss in enumerate(losses, step - len(losses) + 1):
            self._file.write(json.dumps({"step": at, "loss": loss}) + "\n")
            if self._board is not None:
                self._board.add_scalar("loss", loss, at)
        if self._board is not None:
            self._board.add_scalar("learning rate", lr, step)
            self._board.add_scalar("tokens per second", tokens_per_s, step)

    def write_validation(self, step: int, loss: float) -> None:
        """The loss on held-out rows."""
        self._file.write(json.dumps({"step": step, "validation": loss}) + "\n")
        if self._board is not None:
            self._board.add_scalar("validation", loss, step)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _named_share(text: str) -> tuple[str, float]:
    name, equals, share = text.rpartition("=")
    try:
        return (name, float(share)) if equals and name else (text, 1.0)
    except ValueError:
        return text, 1.0


def parser() -> argparse.ArgumentParser:
    """The options of `dice-lsp train sft`."""
    parser = argparse.ArgumentParser(
        prog="dice-lsp train sft",
        description="Tune a checkpoint on records of verified fills, on generated kernels, or on both.",
    )
    add = parser.add_argument
    add("--model", default="tiny", help="`tiny`, a folder, or a pulled checkpoint (default: tiny)")
    add("--data", action="append", type=_named_share, metavar="SOURCE[=SHARE]",
        help="a file of CuKe records, `generated` or `pairs`; give it several times to mix (default: generated)")  # fmt: skip
    add("--out", required=True, type=Path, help="the folder of the tuned checkpoint, its state and its curves")
    add("--steps", type=int)
    add("--minutes", type=float)
    add("--epochs", type=float, help="of the first source, which must be a file")
    add("--resume", action="store_true", help="go on with the run in --out")
    add("--rows", type=int, help="rows of a step, over all GPUs (default: 16)")
    add("--micro-rows", type=int, help="rows of one pass on one GPU (default: all at small sizes, 1 at large ones)")
    add("--row-length", type=int, help="tokens of a row (default: 2048; 8192 for whole files)")
    add("--cutoff", type=int, help="longest prompt and answer in tokens (default: 704; 6144 for whole files)")
    add("--block-sizes", type=int, nargs="+", help="default: those of the checkpoint")
    add("--copies", type=int, help="noisy copies of a document (default: 2; 1 for whole files)")
    add("--noise", choices=[*Noise], default=Noise.COUNTED, help="`rate` is the published form, with the same mean")
    add("--optimiser", choices=["adamw", "muon"], help="default: muon for our own layout, adamw otherwise")
    add("--lr", type=float, help="of AdamW (default: 1e-5; 1e-4 with adapters; 5e-4 at small sizes)")
    add("--muon-lr", type=float, default=0.005)
    add("--warmup-steps", type=int, help="default: 3 %% of the steps")
    add("--decay-from", type=float, default=1.0, help="fraction of the run after which rates fall (default: never)")
    add("--lora", type=int, default=0, metavar="RANK", dest="lora_rank", help="tune adapters of this rank instead")
    add(
        "--checkpointing",
        action=argparse.BooleanOptionalAction,
        help="less memory, a third more time (default: if large)",
    )
    add("--seed", type=int, default=1)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--workers", type=int, default=max(0, min(14, (os.cpu_count() or 1) - 2)), help="processes that prepare rows")
    add("--save-every-min", type=float, default=10.0)
    add(
        "--no-state",
        action="store_false",
        dest="keep_state",
        help="write no state, which has three times the weights' size",
    )
    add("--log-every", type=int, default=10, metavar="STEPS")
    add("--validate-every", type=int, default=0, metavar="STEPS")
    add("--validation", metavar="SOURCE", help="held-out records (default: held-out seeds of the generator)")
    add("--tensorboard", action="store_true", help="curves for TensorBoard in OUT/tensorboard")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command `dice-lsp train sft`; returns its exit code."""
    values = vars(parser().parse_args(argv))
    out, device, resume = values.pop("out"), values.pop("device"), values.pop("resume")
    values["data"] = tuple(values["data"] or [("generated", 1.0)])
    values["block_sizes"] = tuple(values["block_sizes"]) if values["block_sizes"] else None
    # A forked process would complain of the threads that a tokenizer of its parent has.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    try:
        run = Run.begin(Recipe(**values), out, device, resume, lambda line: print(line, file=sys.stderr, flush=True))
        result = run.train()
    except (TrainingError, CheckpointError) as error:
        print(f"dice-lsp: {error}", file=sys.stderr)
        return 2
    except torch.OutOfMemoryError:
        print(
            "dice-lsp: the GPU has too little memory for this run: choose a smaller --micro-rows or --row-length, "
            "--checkpointing, or adapters (--lora 16)",
            file=sys.stderr,
        )
        return 2
    if run.processes.first:
        memory = f", {result.peak_gib:.1f} GiB at most" if result.peak_gib else ""
        print(f"{result.steps} steps, {result.tokens_per_s:.0f} tokens/s{memory}")
        if result.interrupted:
            print(
                "stopped; " + ("the same command with --resume goes on" if run.recipe.keep_state else "it cannot go on")
            )
            return 130
        print(f"{out}\nnext: dice-lsp infill FILE --model {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
