"""The loss of block diffusion, as SDAR and DICE were tuned with it.

Source: Arriola et al., "Block Diffusion" (2025), and SDAR's published fine-tuning. Each block of a reply is masked at a
rate t of its own, drawn from U(0, 1); the cross-entropy of each masked token counts 1/t. A noisy block sees the clean
blocks before it and itself, so a row holds both: the clean document, then the noisy copy of the blocks that hold the
reply (`packing` has the rule). The prompt's own blocks need no noisy copy, because nothing of them is learned. Blocks
are multiples of the block size from the prompt's first token on, as in decoding.

With 1/t weights a block of four tokens that is masked at t = 0.01 counts a hundredfold, so the loss is noisy. The same
expectation is had without t: of the n tokens of a block, k are masked, k uniform in 1..n, and each counts n/k. (Given k
masked tokens, the integral of t**(k-1) * (1-t)**(n-k) over t is 1 / (n * C(n-1, k-1)): every k is equally likely for a
token, whatever the token.) `Noise.COUNTED` does that and is the default; `Noise.RATE` is the published form.
"""

import random
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from attrs import frozen
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dice_lsp.diffusion.model import SDAR, layer_train
from dice_lsp.training.packing import FIELDS

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

RATE_FLOOR = 1e-3
"""The smallest t of the published loss."""
LOGITS_AT_ONCE = 2048
"""Rows of the vocabulary that exist at a time: 2048 x 151,936 in fp32 are 1.2 GB."""
LARGE_VOCABULARY = 16384


class Noise(StrEnum):
    """How many tokens of a block are masked, and what each counts."""

    COUNTED = "counted"
    RATE = "rate"


@frozen
class Sample:
    """One exchange as token ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """The reply with its first end token."""


@frozen
class Corruption:
    """All that turns a sample into a document with noise."""

    block_sizes: tuple[int, ...]
    mask_id: int
    fill_id: int
    """Stands behind the end token up to the end of the last block."""
    copies: int = 1
    """Noisy copies of each document: more learn more from one clean pass."""
    fill_weight: float = 1.0
    """What a filling token counts beside one of the reply."""
    noise: Noise = Noise.COUNTED

    def block_size(self, rng: random.Random) -> int:
        """The block size of a document."""
        return rng.choice(self.block_sizes)

    def length(self, sample: Sample, block_size: int) -> int:
        """Tokens of a sample's document: the clean one and its noisy copies."""
        used = len(sample.prompt) + len(sample.answer)
        total = used + -used % block_size
        return total + self.copies * (total - len(sample.prompt) // block_size * block_size)

    def weight(self, sample: Sample, block_size: int) -> float:
        """What the loss of a document is divided by: its learned tokens, masked or not, each by its weight."""
        fill = -(len(sample.prompt) + len(sample.answer)) % block_size
        return self.copies * (len(sample.answer) + fill * self.fill_weight)

    def document(self, sample: Sample, block_size: int, rng: random.Random) -> tuple[NDArray[Any], NDArray[Any]]:
        """The fields of `packing` for each token, `[6, L]` (document 0 still), and what each counts, `[L]` fp32."""
        prompt, answer = len(sample.prompt), len(sample.answer)
        used = prompt + answer
        clean = np.array([*sample.prompt, *sample.answer, *[self.fill_id] * (-used % block_size)], np.int64)
        count, first = len(clean), prompt // block_size * block_size
        at = np.arange(count)
        values = np.where(at < used, 1.0, self.fill_weight).astype(np.float32)
        parts = [np.stack([clean, at, 0 * at, 0 * at, at // block_size, 0 * at])]
        weights = [np.zeros(count, np.float32)]
        for copy in range(1, self.copies + 1):
            counted = np.zeros(count, np.float32)
            for begin in range(first, count, block_size):
                places = [place for place in range(max(begin, prompt), begin + block_size)]
                masked, worth = self._masked(places, rng)
                counted[masked] = worth * values[masked]
            tokens = np.where(counted > 0, self.mask_id, clean)
            targets = np.where(counted > 0, clean + 1, 0)
            noisy = np.stack([tokens, at, 0 * at, 0 * at + copy, at // block_size, targets])
            parts.append(noisy[:, first:])
            weights.append(counted[first:])
        return np.concatenate(parts, 1), np.concatenate(weights)

    def _masked(self, places: list[int], rng: random.Random) -> tuple[list[int], float]:
        """The masked ones of a block's learned places, and what each counts."""
        if self.noise is Noise.COUNTED:
            chosen = rng.randint(1, len(places))
            return rng.sample(places, chosen), len(places) / chosen
        rate = RATE_FLOOR + (1 - RATE_FLOOR) * rng.random()
        return [place for place in places if rng.random() < rate], 1 / rate

    def row(self, samples: Sequence[tuple[Sample, int]], length: int, rng: random.Random) -> "Row":
        """The documents of samples, each with its block size, side by side in a row of `length` tokens."""
        fields = np.zeros((FIELDS, length), np.int32)
        fields[0] = self.fill_id
        counted = np.zeros(length, np.float32)
        filled = 0
        for number, (sample, size) in enumerate(samples, 1):
            document, weights = self.document(sample, size, rng)
            end = filled + document.shape[1]
            fields[:, filled:end] = document
            fields[2, filled:end] = number
            counted[filled:end] = weights
            filled = end
        return Row(fields, counted, sum(self.weight(sample, size) for sample, size in samples), filled)


@frozen(eq=False)
class Row:
    """Documents side by side; what is left of the row is document 0, which no other sees."""

    fields: NDArray[np.int32]
    """`[6, T]`, as `packing.Row`: token, position, document, copy, block, and 1 + the true token where a loss is."""
    counted: NDArray[np.float32]
    """`[T]`: what each token's cross-entropy counts."""
    weight: float
    """What the row adds to the divisor of its step's loss."""
    filled: int
    """Tokens that belong to documents."""


@frozen(eq=False)
class Batch:
    """Rows on a device."""

    fields: Tensor
    """`[6, N, T]` int64."""
    counted: Tensor
    """`[N, T]` fp32."""

    @classmethod
    def of(cls, rows: Sequence[Row], device: torch.device) -> "Batch":
        fields = torch.from_numpy(np.stack([row.fields for row in rows], 1))
        counted = torch.from_numpy(np.stack([row.counted for row in rows]))
        if device.type == "cuda":
            fields, counted = fields.pin_memory(), counted.pin_memory()
        return cls(fields.to(device, non_blocking=True).long(), counted.to(device, non_blocking=True))


class Objective(nn.Module):
    """A network with its loss as its forward pass, which is what data parallelism over several GPUs asks for."""

    def __init__(self, network: SDAR, checkpointing: bool = False, compiled: bool = False) -> None:
        """`checkpointing` keeps only the input of each layer; `compiled` is for flex attention, which is slow without."""
        super().__init__()
        self.network = network
        self._run: Callable[..., Tensor] | None = None
        self._hidden: Callable[..., Tensor] = network.hidden_train
        compiler: Callable[..., Any] = torch.compile if compiled else lambda function: function
        if checkpointing:
            # Compiled once for all layers, since they differ in nothing but their weights.
            layer = compiler(layer_train)
            self._run = lambda _, *inputs: checkpoint(layer, *inputs, use_reentrant=False)
        else:
            self._hidden = compiler(network.hidden_train)

    def forward(self, batch: Batch, mask: "Tensor | BlockMask") -> Tensor:
        """The weighted sum of the cross-entropies of a batch, not divided by anything."""
        hidden = (
            self._hidden(batch.fields[0], batch.fields[1], mask)
            if self._run is None
            else self.network.hidden_train(batch.fields[0], batch.fields[1], mask, self._run)
        )
        chosen = batch.fields[5] > 0
        losses = token_losses(self.network, hidden[chosen], batch.fields[5][chosen] - 1)
        return (losses * batch.counted[chosen]).sum()


def token_losses(network: SDAR, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropies `[M]` in fp32 of hidden states `[M, hidden]` after the last norm; row i predicts token i itself.

    With a large vocabulary the logits are made piece by piece, and again on the way back.
    """
    if network.config.vocab_size < LARGE_VOCABULARY or len(targets) <= LOGITS_AT_ONCE:
        return _losses(network, hidden, targets)
    pieces = zip(torch.split(hidden, LOGITS_AT_ONCE), torch.split(targets, LOGITS_AT_ONCE), strict=True)
    return torch.cat([checkpoint(_losses, network, part, wanted, use_reentrant=False) for part, wanted in pieces])


def _losses(network: SDAR, hidden: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(network.logits(hidden).float(), targets, reduction="none")
