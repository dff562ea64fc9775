"""One denoising step: which token each masked position would get, how sure that is, and which positions get theirs now.

The network's device does what is large (the vocabulary); a few numbers a position come to the host, which decides.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import attrs
import torch
from attrs import frozen
from torch import Tensor

from dice_lsp.diffusion.rows import Seen
from dice_lsp.records import DecodeSettings

NUCLEUS = 128
"""Most likely tokens that top-p looks at first; the whole vocabulary is sorted only when they do not hold its mass."""


class End(StrEnum):
    """Why a candidate has no more tokens."""

    STOP = "stop"
    """The model wrote an end token."""
    SUFFIX = "suffix"
    """The text after the region was reached."""
    LENGTH = "length"
    """The longest fill was reached: the candidate is not whole."""


@frozen
class Schedule:
    """Decode settings with every value known."""

    strategy: str
    block_size: int
    denoising_steps: int
    threshold: float
    """The confidence of `low_confidence_dynamic`; the summed entropy in nats of `entropy_bounded`."""
    temperature: float
    top_k: int
    """0 for all."""
    top_p: float
    max_new_tokens: int

    @classmethod
    def of(cls, settings: DecodeSettings) -> "Schedule":
        """From settings that a checkpoint completed. Raises `ValueError` naming a value that is missing or impossible."""
        values = attrs.asdict(settings)
        for name, value in values.items():
            if value is None:
                raise ValueError(f"the decode setting {name} has no value")
        schedule = cls(**values)
        if schedule.denoising_steps < 1 or schedule.block_size < 1 or schedule.max_new_tokens < 1:
            raise ValueError("block_size, denoising_steps and max_new_tokens must be at least 1")
        if schedule.temperature < 0 or not 0 < schedule.top_p <= 1 or schedule.top_k < 0:
            raise ValueError("temperature and top_k must not be negative, top_p must be above 0 and at most 1")
        return schedule

    def quota(self, step: int) -> int:
        """Positions to reveal in a step of a block: B // S, and one more in the first B % S steps."""
        share, more = divmod(self.block_size, self.denoising_steps)
        return share + (step < more)


@frozen
class Prediction:
    """What the network says of one masked position."""

    token: int
    confidence: float
    """Probability of the token under the full softmax, in fp32, before temperature and filters."""
    entropy: float
    """Of the full distribution, in nats."""


def predict(
    seen: Seen, mask_id: int, schedule: Schedule, rows: Sequence[int], uniforms: Sequence[float]
) -> tuple[list[Prediction], list[Prediction]]:
    """The likeliest token of each row that a pass saw, and the sampled ones of `rows`, which draw `uniforms`.

    All of the device's work is queued before the one wait for its results.
    """
    told = seen.summary
    if rows:
        index = torch.tensor(rows, device=told.device)
        drawn = seen.logits[index].float()
        drawn[:, mask_id] = -torch.inf
        picked = sample(drawn, torch.tensor(uniforms, device=told.device), schedule)
        sure = (drawn.gather(-1, picked[:, None])[:, 0] - told[index, 3]).exp()
        told = torch.cat([told, torch.stack([picked.float(), sure, told[index, 2], told[index, 3]], 1)])
    found = [Prediction(int(token), confidence, entropy) for token, confidence, entropy, _ in told.tolist()]
    count = seen.summary.shape[0]
    return found[:count], found[count:]


def choose_positions(schedule: Schedule, masked: Mapping[int, Prediction], quota: int) -> list[int]:
    """Which of the masked positions to reveal in this step, at least one. Equal values go to the leftmost."""
    quota = max(quota, 1)
    places = sorted(masked)
    if schedule.strategy == "sequential":
        return places[:quota]
    if schedule.strategy == "entropy_bounded":
        rising = sorted(places, key=lambda at: masked[at].entropy)
        kept, total = rising[:1], masked[rising[0]].entropy
        for at in rising[1:]:
            total += masked[at].entropy
            if total > schedule.threshold:
                break
            kept.append(at)
        return kept
    best = sorted(places, key=lambda at: -masked[at].confidence)[:quota]
    if schedule.strategy == "low_confidence_static":
        return best
    if schedule.strategy != "low_confidence_dynamic":
        raise ValueError(f"unknown strategy {schedule.strategy!r}")
    sure = [at for at in places if masked[at].confidence > schedule.threshold]
    return sure if len(sure) >= min(quota, len(places)) else best


def sample(logits: Tensor, uniform: Tensor, schedule: Schedule) -> Tensor:
    """Tokens `[M]` from `logits` `[M, V]` after temperature, top-k and top-p, by the inverse of their distribution.

    `uniform` `[M]` in [0, 1) decides, so that a token depends on its own draw only and not on the batch.
    """
    logits = logits / schedule.temperature
    vocabulary = logits.shape[-1]
    if 0 < schedule.top_k < vocabulary:
        ranked, index = logits.topk(schedule.top_k)
        probabilities = ranked.softmax(-1)
    elif schedule.top_p < 1:
        probabilities, index = logits.softmax(-1).topk(min(NUCLEUS, vocabulary))
        if bool((probabilities.sum(-1) < schedule.top_p).any()):
            probabilities, index = logits.softmax(-1).sort(descending=True)
    else:
        probabilities, index = logits.softmax(-1), None
    summed = probabilities.cumsum(-1)
    mass = summed[:, -1:]
    if schedule.top_p < 1:
        # The nucleus: every token that begins before the mass is reached, so always the first.
        inside = (summed - probabilities < schedule.top_p).sum(-1, keepdim=True)
        mass = summed.gather(-1, inside - 1)
    picked = torch.searchsorted(summed, uniform[:, None] * mass, right=True)
    picked = picked.clamp(max=vocabulary - 1 if index is None else index.shape[-1] - 1)
    return picked[:, 0] if index is None else index.gather(-1, picked)[:, 0]


class Draws:
    """The uniform numbers of one candidate: a vector of the block's size for each of its steps, whenever it is asked for."""

    def __init__(self, seed: int, candidate: int, block_size: int) -> None:
        # Always on the CPU, so that all devices draw the same.
        self._generator = torch.Generator().manual_seed((seed * 1_000_003 + candidate) % 2**63)
        self._block_size = block_size
        self._steps: list[list[float]] = []

    def of(self, step: int) -> list[float]:
        """Of the candidate's step of this number, counted from 0 over the whole fill."""
        while len(self._steps) <= step:
            self._steps.append(torch.rand(self._block_size, generator=self._generator).tolist())
        return self._steps[step]
