"""Denoising: from a prompt to the tokens of several candidates, block by block.

A block begins as masks (after the prompt's remainder, in the first one). Each pass predicts every position; a strategy
chooses which predictions to keep; when no mask is left the block's keys and values are committed and the next begins.
Blocks are cut at absolute multiples of the block size, counted from the prompt's first token.

Confidence is one thing everywhere: the probability of the chosen token under the full softmax of the logits, in fp32,
before temperature and filters. Equal confidences go to the leftmost position.

Candidates with the same tokens so far are one row of the batch (a branch). They part where their samples differ, so
eight candidates cost little more than one for as long as the model is sure.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import attrs
import torch
from attrs import define, frozen
from torch import Tensor

from dice_lsp.diffusion.model import SDAR, KVCache
from dice_lsp.records import DecodeSettings

PREFILL_TOKENS = 256
"""Tokens of one prefill pass: a cancel is seen between passes."""

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
class Decoded:
    """Tokens of one or more candidates that turned out the same."""

    candidates: tuple[int, ...]
    tokens: tuple[int, ...]
    """Without the end token and what follows it."""
    confidences: tuple[float, ...]
    """Of each token, when it was revealed."""
    steps: tuple[int, ...]
    """The pass that revealed each token, counted from 0 over the whole fill."""
    forwards: int
    """Passes that this candidate took part in, its share of the prefill included."""
    end: End


@define
class _Branch:
    """The tokens that its members share: one row of the batch."""

    members: list[int]
    block: list[int]
    confidences: list[float]
    """Of the block's positions, like `steps`; meaningless where the block holds prompt or masks."""
    steps: list[int]
    history: list[int] = attrs.field(factory=list)
    """Generated tokens of the blocks before."""
    history_confidences: list[float] = attrs.field(factory=list)
    history_steps: list[int] = attrs.field(factory=list)
    forwards: int = 0

    def fork(self, members: list[int]) -> "_Branch":
        return _Branch(
            members,
            self.block.copy(),
            self.confidences.copy(),
            self.steps.copy(),
            self.history.copy(),
            self.history_confidences.copy(),
            self.history_steps.copy(),
            self.forwards,
        )


OnDecoded = Callable[[Decoded], bool]
OnPartial = Callable[[tuple[int, ...], list[int]], None]
ReachedSuffix = Callable[[list[int]], bool]


class Decoding:
    """One prompt in the cache, from which candidates are sampled. Candidate 0 is greedy, candidate n has its own seed.

    A candidate's tokens depend on the prompt, the settings, the seed and its number, not on which others run beside it.

    `fused` commits a block in the pass that first predicts the next one and leaves a block as soon as an end token is
    certain; the tokens are the same. Without it the passes are those of the published loop: one commit a block, the
    end looked for after it.
    """

    def __init__(
        self,
        network: SDAR,
        prompt: Sequence[int],
        schedule: Schedule,
        *,
        mask_id: int,
        stop_ids: Sequence[int] = (),
        rows: int = 1,
        seed: int = 0,
        fused: bool = True,
        reached_suffix: ReachedSuffix | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Allocate the cache for batches of up to `rows` candidates and read the prompt into it.

        `check` is called between passes: it may raise to cancel, or wait while the device is needed elsewhere.
        Raises `ValueError` when prompt and fill are longer than the network's positions.
        """
        self.network, self.schedule, self.mask_id, self.seed = network, schedule, mask_id, seed
        self.stop_ids, self.fused = frozenset(stop_ids), fused
        self._reached_suffix, self._check = reached_suffix, check
        size = schedule.block_size
        whole = len(prompt) // size * size
        self.remainder = list(prompt[whole:])
        self.blocks = -(-(len(self.remainder) + schedule.max_new_tokens) // size)
        capacity = whole + self.blocks * size
        if capacity > network.config.max_position_embeddings:
            raise ValueError(
                f"{len(prompt)} tokens of prompt and {schedule.max_new_tokens} of fill are over the network's "
                f"{network.config.max_position_embeddings} positions"
            )
        self.cache: KVCache = network.cache(rows, capacity)
        self.cache.rows = 1
        self.forwards = 0
        """Passes of the network so far, whatever their batch."""
        self.tokens = 0
        """Tokens of the candidates decoded so far."""
        chunk = max(PREFILL_TOKENS // size, 1) * size
        for start in range(0, whole, chunk):
            self._check()
            ids = torch.tensor([list(prompt[start : min(start + chunk, whole)])], device=network.device)
            network.prefill(ids, self.cache, size)
            self.forwards += 1
        self.prompt_forwards = self.forwards
        self.prompt_slots = whole

    @torch.inference_mode()
    def run(
        self,
        candidates: Sequence[int],
        on_decoded: OnDecoded | None = None,
        on_partial: OnPartial | None = None,
    ) -> list[Decoded]:
        """Decode the candidates of these numbers in lockstep, each handed out as soon as it ends.

        `on_decoded` ends the run by returning True. `on_partial(candidates, tokens)` is called for each branch after
        each of its blocks.
        """
        if len(candidates) > self.cache.max_rows:
            raise ValueError(f"{len(candidates)} candidates do not fit a cache of {self.cache.max_rows} rows")
        size, mask = self.schedule.block_size, self.mask_id
        self.cache.length, self.cache.rows = self.prompt_slots, 1
        generators = {number: _generator(self.seed, number) for number in candidates}
        decoded: list[Decoded] = []
        fresh = [mask] * (size - len(self.remainder))
        branches = [_Branch(list(candidates), self.remainder + fresh, [0.0] * size, [0] * size)]
        branches[0].forwards = self.prompt_forwards
        given = len(self.remainder)
        pending: list[list[int]] | None = None

        def finish(branch: _Branch, end: End) -> bool:
            row = branches.index(branch)
            branches.pop(row)
            self.cache.drop(row)
            if row < len(branches):
                # The cache moved its last row into the gap; the branches follow it.
                branches.insert(row, branches.pop())
            result = self._result(branch, end)
            decoded.append(result)
            self.tokens += len(result.tokens) * len(result.candidates)
            return on_decoded is not None and on_decoded(result)

        for number in range(self.blocks):
            step = 0
            while branches and any(mask in branch.block for branch in branches):
                self._check()
                logits = self._forward(branches, pending)
                pending = None
                self._reveal(branches, logits, self.schedule.quota(step), generators)
                step += 1
                if self.fused:
                    for branch in [item for item in branches if self._stops_early(item, given)]:
                        if finish(branch, End.STOP):
                            return decoded
            if not branches:
                return decoded
            if not self.fused:
                self._check()
                self.network.commit(self._blocks(branches), self.cache)
                self._count(branches)
            for branch in branches:
                branch.history += branch.block[given:]
                branch.history_confidences += branch.confidences[given:]
                branch.history_steps += branch.steps[given:]
            given = 0
            ended = [(branch, end) for branch in branches if (end := self._end(branch, number)) is not None]
            for branch, end in ended:
                if finish(branch, end):
                    return decoded
            if not branches:
                return decoded
            if on_partial is not None:
                for branch in branches:
                    on_partial(tuple(branch.members), branch.history)
            if self.fused:
                pending = [branch.block for branch in branches]
            for branch in branches:
                branch.block, branch.confidences, branch.steps = [mask] * size, [0.0] * size, [0] * size
        return decoded

    def _blocks(self, branches: Sequence[_Branch]) -> Tensor:
        return torch.tensor([branch.block for branch in branches], device=self.network.device)

    def _count(self, branches: Sequence[_Branch]) -> None:
        self.forwards += 1
        for branch in branches:
            branch.forwards += 1

    def _forward(self, branches: Sequence[_Branch], pending: list[list[int]] | None) -> Tensor:
        self._count(branches)
        blocks = self._blocks(branches)
        if pending is None:
            return self.network.forward_block(blocks, self.cache)
        return self.network.forward_fused(torch.tensor(pending, device=self.network.device), blocks, self.cache)

    def _reveal(
        self, branches: list[_Branch], logits: Tensor, quota: int, generators: dict[int, torch.Generator | None]
    ) -> None:
        """Fill positions of each branch from `logits` `[branches, B, V]`, and part the members that chose differently."""
        rows: list[int] = []
        members: list[int] = []
        for row, branch in enumerate(branches):
            # A branch whose block is full waits for the others and draws nothing meanwhile.
            if self.mask_id in branch.block:
                rows += [row] * len(branch.members)
                members += branch.members
        draws = [generators[member] for member in members]
        masked = self._blocks(branches)[rows] == self.mask_id
        tokens, confidences, entropies = self._choose(logits, rows, masked, draws)
        chosen = choose_positions(self.schedule, masked, confidences, entropies, quota)
        packed = torch.stack([tokens.double(), confidences.double(), chosen.double()]).tolist()
        outcomes: dict[int, dict[tuple[int, ...], tuple[list[float], list[int]]]] = {}
        for row, member, *lists in zip(rows, members, *packed, strict=True):
            values, probabilities, flags = lists
            branch = branches[row]
            block = tuple(
                int(value) if flag else old for old, value, flag in zip(branch.block, values, flags, strict=True)
            )
            kept = [
                new if flag else old for old, new, flag in zip(branch.confidences, probabilities, flags, strict=True)
            ]
            outcomes.setdefault(row, {}).setdefault(block, (kept, []))[1].append(member)
        for row, parts in outcomes.items():
            branch = branches[row]
            step = branch.forwards - 1
            before = branch.block
            for index, (block, (kept, group)) in enumerate(parts.items()):
                target = branch
                if index:
                    target = branch.fork(group)
                    branches.append(target)
                    self.cache.fork(row)
                target.members = group
                target.confidences = kept
                target.steps = [
                    step if new != old else known for old, new, known in zip(before, block, branch.steps, strict=True)
                ]
                target.block = list(block)

    def _choose(
        self, logits: Tensor, rows: list[int], masked: Tensor, draws: Sequence[torch.Generator | None]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Token, confidence and entropy `[members, B]` for every masked position; zeros elsewhere."""
        device = logits.device
        tokens = torch.zeros(masked.shape, dtype=torch.long, device=device)
        confidences = torch.zeros(masked.shape, device=device)
        entropies = torch.zeros(masked.shape, device=device)
        member, position = masked.nonzero(as_tuple=True)
        branch = torch.tensor(rows, device=device)[member]
        at = logits[branch, position].float()
        total = at.logsumexp(-1)
        if self.schedule.strategy == "entropy_bounded":
            logs = at - total[:, None]
            entropies[member, position] = -(logs.exp() * logs).sum(-1)
        # A mask is no token of a text: a network that predicts one would otherwise never finish its block.
        at[:, self.mask_id] = -torch.inf
        picked = at.argmax(-1)
        if self.schedule.temperature > 0:
            size = masked.shape[1]
            uniform = torch.stack(
                [torch.zeros(size) if draw is None else torch.rand(size, generator=draw) for draw in draws]
            ).to(device)
            sampled = torch.tensor([draw is not None for draw in draws], device=device)[member]
            if bool(sampled.any()):
                picked[sampled] = sample(at[sampled], uniform[member, position][sampled], self.schedule)
        tokens[member, position] = picked
        confidences[member, position] = (at.gather(-1, picked[:, None])[:, 0] - total).exp()
        return tokens, confidences, entropies

    def _stops_early(self, branch: _Branch, given: int) -> bool:
        """An end token stands with no mask before it: what comes after cannot change the text."""
        for token in branch.block[given:]:
            if token == self.mask_id:
                return False
            if token in self.stop_ids:
                branch.history += branch.block[given:]
                branch.history_confidences += branch.confidences[given:]
                branch.history_steps += branch.steps[given:]
                return True
        return False

    def _end(self, branch: _Branch, block: int) -> End | None:
        if any(token in self.stop_ids for token in branch.history[-self.schedule.block_size :]):
            return End.STOP
        if self._reached_suffix is not None and self._reached_suffix(branch.history):
            return End.SUFFIX
        return End.LENGTH if block == self.blocks - 1 else None

    def _result(self, branch: _Branch, end: End) -> Decoded:
        length = next((at for at, token in enumerate(branch.history) if token in self.stop_ids), len(branch.history))
        return Decoded(
            tuple(branch.members),
            tuple(branch.history[:length]),
            tuple(branch.history_confidences[:length]),
            tuple(branch.history_steps[:length]),
            branch.forwards,
            end,
        )


def choose_positions(schedule: Schedule, masked: Tensor, confidences: Tensor, entropies: Tensor, quota: int) -> Tensor:
    """Which masked positions `[N, B]` to reveal in this step; at least one in each row that has any."""
    quota = max(quota, 1)
    if schedule.strategy == "sequential":
        return masked & (masked.cumsum(-1) <= quota)
    if schedule.strategy == "entropy_bounded":
        values = torch.where(masked, entropies, torch.inf)
        order = values.argsort(dim=-1, stable=True)
        summed = values.gather(-1, order).cumsum(-1)
        keep = summed <= schedule.threshold
        keep[:, 0] = True
        return masked & torch.zeros_like(masked).scatter(-1, order, keep)
    values = torch.where(masked, confidences, -1.0)
    order = values.argsort(dim=-1, descending=True, stable=True)
    best = torch.zeros_like(masked).scatter(-1, order[:, :quota], True) & masked
    if schedule.strategy == "low_confidence_static":
        return best
    if schedule.strategy != "low_confidence_dynamic":
        raise ValueError(f"unknown strategy {schedule.strategy!r}")
    sure = masked & (confidences > schedule.threshold)
    enough = sure.sum(-1, keepdim=True) >= masked.sum(-1, keepdim=True).clamp(max=quota)
    return torch.where(enough, sure, best)


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


def _generator(seed: int, candidate: int) -> torch.Generator | None:
    """None for candidate 0, which is greedy. Always on the CPU, so that all devices draw the same."""
    if candidate == 0:
        return None
    return torch.Generator().manual_seed((seed * 1_000_003 + candidate) % 2**63)
