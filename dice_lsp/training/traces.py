"""Decoded candidates as rows of tokens for policy gradients: every state in which a token was chosen, rebuilt from ids.

TraceRL (Wang et al. 2025, arXiv 2509.06949, as DICE trains with it) takes the loss of a token in the state that it was
sampled in. In a block, tokens that one pass revealed form a round; the state of a round shows the rounds before it and
masks everywhere else. All rounds of one number, over all blocks, make one copy of the response beside its clean tokens, so
a response with blocks of 8 costs at most 8 copies in one pass.

Everything comes from the ids and steps of `Decoded`. Nothing is spelled out and tokenised again, which would misalign
tokens and steps; and blocks are cut where decoding cut them, at multiples of the block size from the prompt's first token.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dice_lsp.diffusion.decode import Decoded
from dice_lsp.diffusion.model import SDAR
from dice_lsp.training.block_diffusion import token_losses
from dice_lsp.training.packing import visible

TraceRow = NDArray[np.int64]
"""`[7, T]`: the fields of `packing.Row`, and 1 + the number of the response."""

TOKEN, POSITION, DOCUMENT, COPY, BLOCK, TARGET, RESPONSE = range(7)
FIELDS = 7
LOG_RATIO_LIMIT = 10.0


@frozen
class Trace:
    """One response with the order in which it came about."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    """All of its blocks: what followed an end token too, masks where decoding left some. With the prompt whole blocks."""
    steps: tuple[int, ...]
    """The step that revealed each token; meaningless for masks."""
    learned: int
    """Tokens that get a loss: up to the end token, which is one of them."""

    @classmethod
    def of(cls, prompt: Sequence[int], decoded: Decoded) -> "Trace":
        ended = 1 if decoded.tail else 0
        return cls(
            tuple(prompt),
            decoded.tokens + decoded.tail,
            decoded.steps + decoded.tail_steps,
            len(decoded.tokens) + ended,
        )


def rounds_of(steps: Sequence[int], limit: int = 0) -> list[int]:
    """The round of each token of one block, from 0, given the steps that revealed them.

    With a `limit`, neighbouring rounds are merged until there are no more than that: cheaper, and the tokens of a merged
    round are then trained in the state of its first pass.
    """
    order = {step: number for number, step in enumerate(sorted(set(steps)))}
    count = len(order)
    if limit and count > limit:
        order = {step: number * limit // count for step, number in order.items()}
    return [order[step] for step in steps]


def trace_row(trace: Trace, block_size: int, mask_id: int, rounds: int = 0) -> TraceRow:
    """The row of one response: the clean tokens of all blocks but the last, then a copy for each round.

    A copy holds only the blocks that have that round. Raises `ValueError` when the blocks are not whole.
    """
    given = len(trace.prompt)
    tokens = [*trace.prompt, *trace.tokens]
    if len(tokens) % block_size or len(trace.steps) != len(trace.tokens):
        raise ValueError(
            f"{given} tokens of prompt and {len(trace.tokens)} of response with {len(trace.steps)} steps are not whole "
            f"blocks of {block_size}"
        )
    first, last = given // block_size, len(tokens) // block_size - 1
    columns = [(token, at, 0, at // block_size, 0) for at, token in enumerate(tokens[: last * block_size])]
    for block in range(first, last + 1):
        start = block * block_size
        # What the prompt holds of the first block was never masked, and what stayed masked was never revealed.
        free = [at for at in range(max(start, given), start + block_size) if tokens[at] != mask_id]
        of_place = dict(zip(free, rounds_of([trace.steps[at - given] for at in free], rounds), strict=True))
        for number in range(max(of_place.values(), default=-1) + 1):
            for at in range(start, start + block_size):
                mine = of_place.get(at)
                shown = at < given or (mine is not None and mine < number)
                learned = mine == number and at - given < trace.learned
                columns.append(
                    (tokens[at] if shown else mask_id, at, number + 1, block, tokens[at] + 1 if learned else 0)
                )
    row = np.zeros((FIELDS, len(columns)), np.int64)
    values = np.array(columns, np.int64).T
    row[TOKEN], row[POSITION], row[COPY], row[BLOCK], row[TARGET] = values
    return row


def batches_of(rows: Sequence[TraceRow], most_tokens: int, row_length: int = 2048) -> list[Tensor]:
    """Rows packed into batches `[7, N, T]`, longest first, of at most `most_tokens` unless one row alone is longer.

    Documents of a batch's row are told apart by their number, so they do not see each other. Response number r, counted
    from 0 over `rows`, has `RESPONSE` r + 1; padding has 0.
    """
    packed: list[list[int]] = []
    room: list[int] = []
    length = max([row_length, *(row.shape[1] for row in rows)])
    for index in sorted(range(len(rows)), key=lambda index: -rows[index].shape[1]):
        need = rows[index].shape[1]
        place = next((at for at, free in enumerate(room) if free >= need), None)
        if place is None:
            packed.append([])
            room.append(length)
            place = len(packed) - 1
        packed[place].append(index)
        room[place] -= need
    count = max(1, most_tokens // length)
    batches = []
    for at in range(0, len(packed), count):
        part = packed[at : at + count]
        # Padding costs as much as tokens do: a batch is as wide as its fullest row.
        width = max(length - room[at + offset] for offset in range(len(part)))
        batch = np.zeros((FIELDS, len(part), width), np.int64)
        for line, members in enumerate(part):
            filled = 0
            for document, index in enumerate(members, 1):
                size = rows[index].shape[1]
                batch[:, line, filled : filled + size] = rows[index]
                batch[DOCUMENT, line, filled : filled + size] = document
                batch[RESPONSE, line, filled : filled + size] = index + 1
                filled += size
        batches.append(torch.from_numpy(batch))
    return batches


def log_probabilities(
    network: SDAR, batch: Tensor, temperature: float = 1.0, checkpointing: bool = False
) -> tuple[Tensor, Tensor]:
    """Of each learned token of a batch `[7, N, T]` its log-probability `[M]` in its state, and its response's number `[M]`.

    `temperature` is that of sampling: the policy that answered is the one that learns. `checkpointing` keeps only the input
    of each layer and computes the rest again on the way back.
    """
    chosen = batch[TARGET] > 0
    mask = visible(batch[DOCUMENT], batch[COPY], batch[BLOCK])
    run = _again if checkpointing else None
    hidden = network.hidden_train(batch[TOKEN], batch[POSITION], mask, run)
    # Logits are linear in the hidden state, so this divides them.
    cooled = hidden[chosen] / temperature
    return -token_losses(network, cooled, batch[TARGET][chosen] - 1), batch[RESPONSE][chosen] - 1


def _again(layer: Callable[..., Tensor], *inputs: Any) -> Tensor:
    kept: Tensor = checkpoint(layer, *inputs, use_reentrant=False)
    return kept


def advantages(rewards: Sequence[float]) -> list[float] | None:
    """The rewards of a group as z-scores (population deviation); None where all are equal and nothing can be learned."""
    mean = sum(rewards) / len(rewards)
    deviation = (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
    if deviation < 1e-6:
        return None
    return [(reward - mean) / deviation for reward in rewards]


def policy_loss(
    new: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, clip: float = 0.2, beta: float = 0.01
) -> Tensor:
    """The clipped surrogate and its penalty, summed over tokens `[M]`, to be minimised.

    `old` are the log-probabilities when the responses were sampled. The penalty is `beta` times the k3 estimate of the
    divergence from that policy (Schulman 2020): `exp(old - new) - 1 - (old - new)`. `weight` is each token's share: one
    over its response's length and over the number of responses.
    """
    change = (new - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = change.exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    divergence = (-change).exp() - 1 + change
    return -(weight * (surrogate - beta * divergence)).sum()
