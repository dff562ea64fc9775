"""Guesses of what the next denoising steps will do, so that one pass can check several of them.

A step of the plain loop depends on the logits at one state of a block and on draws that are fixed beforehand. A pass that
also holds guessed later states therefore tells, for each of them, what the plain loop would do there; it is followed as
long as the guesses were right. Nothing that is guessed can change a token, and sampled fills are as exact as greedy ones.

Where guesses come from: the remaining predictions of the state before (`guess_path`), and earlier text that continues the
same way (`Lookup`). How many are worth their rows follows from how often guesses were right (`Acceptance`).
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, evolve, field, frozen

from dice_lsp.diffusion.reveal import Prediction, Schedule, choose_positions

EASED = 2 / 3
"""Share of a threshold that a guess asks for: revealed tokens make their neighbours surer than they were before."""

LOOKUP_TOKENS = (5, 4, 3)
"""How many of the last tokens must be the same for earlier text to be taken for a guess; the longest first."""


@frozen
class State:
    """A block with masks, whose logits are asked for."""

    number: int
    """Of the block in the fill."""
    block: tuple[int, ...]
    source: str = "path"
    """Of the guess: `path` or `lookup`."""


@frozen
class Clean:
    """A block without masks, whose keys and values are right if it is."""

    number: int
    block: tuple[int, ...]
    source: str = "path"


Link = State | Clean


def guess_path(
    block: Sequence[int], predicted: Mapping[int, Prediction], schedule: Schedule, step: int
) -> list[tuple[int, ...]]:
    """The states after `block` up to the full one, if the predictions of an earlier state still held.

    `step` is the next step's number in its block.
    """
    if schedule.strategy == "low_confidence_dynamic":
        schedule = evolve(schedule, threshold=schedule.threshold * EASED)
    states, current, left = [], list(block), dict(predicted)
    while left:
        for at in choose_positions(schedule, left, schedule.quota(step)):
            current[at] = left.pop(at).token
        states.append(tuple(current))
        step += 1
    return states


def path_to(full: Sequence[int], block: Sequence[int], mask_id: int, schedule: Schedule) -> list[tuple[int, ...]]:
    """The states from `block` up to `full`: at once where a schedule may reveal all that is sure, else left to right."""
    masked = [at for at, token in enumerate(block) if token == mask_id]
    if schedule.strategy in ("low_confidence_dynamic", "entropy_bounded"):
        return [tuple(full)]
    states, current, step = [], list(block), 0
    while masked:
        quota = max(schedule.quota(step), 1)
        for at in masked[:quota]:
            current[at] = full[at]
        del masked[:quota]
        states.append(tuple(current))
        step += 1
    return states


class Lookup:
    """Text that what is being written may repeat: the prompt, the suffix in it, and other candidates."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._prompt = list(prompt)
        self._after: dict[tuple[int, ...], int] = {}
        for length in LOOKUP_TOKENS:
            for end in range(length, len(self._prompt)):
                self._after[tuple(self._prompt[end - length : end])] = end

    def propose(self, written: Sequence[int], count: int, others: Iterable[Sequence[int]] = ()) -> list[int]:
        """Up to `count` tokens that followed elsewhere on the last ones of prompt and `written`."""
        tail = (self._prompt[-LOOKUP_TOKENS[0] :] + list(written))[-LOOKUP_TOKENS[0] :]
        texts = [written, *others]
        for length in LOOKUP_TOKENS:
            key = tuple(tail[-length:])
            if len(key) < length:
                continue
            for text in texts:
                for end in range(len(text) - 1, length - 1, -1):
                    if text[end - 1] == key[-1] and tuple(text[end - length : end]) == key:
                        return list(text[end : end + count])
            if (found := self._after.get(key)) is not None:
                return self._prompt[found : found + count]
        return []


FIXED_ROWS = {"cpu": 28.0, "cuda": 150.0}
"""How many rows cost as much as what a pass takes without any, by kind of device: `python -m tests.bench.decode` measures it.

A constant and not a stopwatch, so that the same fill is made of the same passes every time: the last bits of a logit may
depend on how many rows a pass has.
"""


@define
class Acceptance:
    """How often a guess turned out right, by where it came from."""

    rate: dict[str, float] = field(factory=lambda: {"path": 0.6, "lookup": 0.5})
    guessed: int = 0
    accepted: int = 0

    def learn(self, source: str, right: bool) -> None:
        self.guessed += 1
        self.accepted += right
        self.rate[source] += 0.1 * (right - self.rate[source])

    def forget(self, source: str) -> None:
        """Of a guess that was not worth trying: it may be tried again some time."""
        self.rate[source] += 0.02 * (0.5 - self.rate[source])


def worth(chance: float, rows: int, fixed_rows: float) -> bool:
    """Whether rows that save a pass with this chance cost less than they save."""
    return chance * (fixed_rows + rows) > rows
