"""Denoising: from a prompt to the tokens of several candidates, block by block.

A block begins as masks (after the prompt's remainder, in the first one). Each pass predicts every masked position; a
strategy chooses which predictions to keep; when no mask is left the block's keys and values are committed and the next
begins. Blocks are cut at absolute multiples of the block size, counted from the prompt's first token.

Confidence is one thing everywhere: the probability of the chosen token under the full softmax of the logits, in fp32,
before temperature and filters. Equal confidences go to the leftmost position.

Candidates with the same tokens so far are one branch. They part where their samples differ, so eight candidates cost
little more than one for as long as the model is sure. Branches need not keep step: each pass holds whatever each of them
needs next, finished ones leave and waiting ones join.

Slots of the cache: the whole blocks of the prompt, seen by all; scratch, for blocks that still hold masks; and for each
branch one or two runs that hold its committed blocks.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import attrs
import torch
from attrs import define, frozen

from dice_lsp.diffusion.reveal import Draws as Draws
from dice_lsp.diffusion.reveal import End as End
from dice_lsp.diffusion.reveal import Prediction, choose_positions, predict
from dice_lsp.diffusion.reveal import Schedule as Schedule
from dice_lsp.diffusion.rows import RowNetwork, Rows, SlotCache
from dice_lsp.diffusion.slots import Arena, PromptCache
from dice_lsp.diffusion.speculate import FIXED_ROWS, Acceptance, Clean, Link, Lookup, State, guess_path, path_to, worth

MAX_ROWS = 96
"""Rows of a pass that guesses may fill it up to; up to here a pass hardly costs more on a GPU."""

FIRST_RUN = 128
"""Slots of a branch's first run. Most fills need no second one, and short runs keep what a pass reads short."""

LOOKUP_BLOCKS = 3
"""Blocks ahead that earlier text may guess."""


@frozen
class Decoded:
    """Tokens of one or more candidates that turned out the same."""

    candidates: tuple[int, ...]
    tokens: tuple[int, ...]
    """Without the end token and what follows it."""
    confidences: tuple[float, ...]
    """Of each token, when it was revealed."""
    steps: tuple[int, ...]
    """The step that revealed each token, counted as a loop that guesses nothing counts its passes, the prompt's first."""
    forwards: int
    """Passes that this candidate took part in, its share of the prefill included."""
    end: End
    tail: tuple[int, ...] = ()
    """The end token and what follows it in its block; masks where nothing had been revealed when decoding ended."""
    tail_steps: tuple[int, ...] = ()
    """Of the tail's tokens, as `steps`; meaningless for masks. With it the states of the last block can be rebuilt."""


@define(eq=False)
class _Branch:
    """The tokens that its members share, and the block that they are at."""

    members: list[int]
    block: list[int]
    confidences: list[float]
    """Of the block's positions, like `steps`; meaningless where the block holds prompt or masks."""
    steps: list[int]
    number: int = 0
    """Of the block in the fill."""
    step: int = 0
    """Steps done in this block."""
    drawn: int = 0
    """Steps done in all: the number of the next draw."""
    clock: int = 0
    pending: list[int] | None = None
    """The block before, full, whose keys and values are not in their slots yet."""
    closing: bool = False
    """The block is full and only its commit is left: without fusion that is a pass of its own."""
    runs: list[tuple[int, int]] = attrs.field(factory=list)
    """`(first slot, slots)`, at most two."""
    left: dict[int, Prediction] = attrs.field(factory=dict)
    """What the last state predicted for positions that are still masked."""
    history: list[int] = attrs.field(factory=list)
    """Generated tokens of the blocks before."""
    history_confidences: list[float] = attrs.field(factory=list)
    history_steps: list[int] = attrs.field(factory=list)
    forwards: int = 0

    def fork(self, members: list[int]) -> "_Branch":
        return attrs.evolve(
            self,
            members=members,
            block=self.block.copy(),
            confidences=self.confidences.copy(),
            steps=self.steps.copy(),
            runs=[],
            left={},
            history=self.history.copy(),
            history_confidences=self.history_confidences.copy(),
            history_steps=self.history_steps.copy(),
        )


OnDecoded = Callable[[Decoded], bool]
OnPartial = Callable[[tuple[int, ...], list[int]], None]
ReachedSuffix = Callable[[list[int]], bool]


class _Enough(Exception):
    """Whoever takes the candidates has enough of them."""


class Decoding:
    """One prompt in the cache, from which candidates are sampled. Candidate 0 is greedy, candidate n has its own draws.

    A candidate's tokens depend on the prompt, the settings, the seed and its number, not on which others run beside it,
    nor on `fused` and `speculate`.

    `fused` commits a block in the pass that first predicts the next one and leaves a block as soon as an end token is
    certain. Without it the passes are those of the published loop: one commit a block, the end looked for after it.
    `speculate` lets passes check guessed states too; it needs `fused`.
    """

    def __init__(
        self,
        network: RowNetwork,
        prompt: Sequence[int],
        schedule: Schedule,
        *,
        stop_ids: Sequence[int] = (),
        rows: int = 1,
        seed: int = 0,
        fused: bool = True,
        speculate: bool = True,
        reached_suffix: ReachedSuffix | None = None,
        check: Callable[[], None] = lambda: None,
        prompt_cache: PromptCache | None = None,
    ) -> None:
        """Make room for up to `rows` candidates at once and read the prompt, as far as `prompt_cache` does not hold it.

        `check` is called between passes: it may raise to cancel, or wait while the device is needed elsewhere.
        Raises `ValueError` when prompt and fill are longer than the network's positions.
        """
        self.network, self.schedule, self.seed = network, schedule, seed
        self.mask_id = network.config.mask_token_id
        self.stop_ids, self.fused, self.speculate = frozenset(stop_ids), fused, speculate and fused
        self.rows = rows
        self._reached_suffix, self._check = reached_suffix, check
        size = schedule.block_size
        whole = len(prompt) // size * size
        self.remainder = list(prompt[whole:])
        self.blocks = -(-(len(self.remainder) + schedule.max_new_tokens) // size)
        if whole + self.blocks * size > network.config.max_position_embeddings:
            raise ValueError(
                f"{len(prompt)} tokens of prompt and {schedule.max_new_tokens} of fill are over the network's "
                f"{network.config.max_position_embeddings} positions"
            )
        self.prompt_slots = whole
        self._scratch = max(rows * size, MAX_ROWS if self.speculate else 0)
        first = min(-(-FIRST_RUN // size), self.blocks) * size
        self._run_slots = (first, self.blocks * size - first)
        slots = whole + self._scratch + rows * self.blocks * size
        self.forwards = 0
        """Passes of the network so far, whatever their rows."""
        self.tokens = 0
        """Tokens of the candidates decoded so far."""
        self.row_count = 0
        """Rows of all passes but the prompt's."""
        self.acceptance = Acceptance()
        self._fixed_rows = FIXED_ROWS.get(network.device.type, FIXED_ROWS["cpu"])
        self._lookup = Lookup(prompt) if self.speculate else None
        keeper = prompt_cache or PromptCache(network)
        self.cache: SlotCache
        self.cache, self.prompt_forwards = keeper.prepare(list(prompt[:whole]), size, slots, check)
        self.forwards += self.prompt_forwards
        self._arena = Arena(whole + self._scratch, self.cache.slots)
        self._draws: dict[int, Draws] = {}
        self._branches: list[_Branch] = []
        self._decoded: list[Decoded] = []
        self._on_decoded: OnDecoded | None = None
        self._on_partial: OnPartial | None = None

    @torch.inference_mode()
    def run(
        self,
        candidates: Iterable[int],
        on_decoded: OnDecoded | None = None,
        on_partial: OnPartial | None = None,
        deadline: float | None = None,
    ) -> list[Decoded]:
        """Decode the candidates of these numbers, as many at once as there is room for, each handed out as it ends.

        `on_decoded` ends the run by returning True. `on_partial(candidates, tokens)` is called for each branch after
        each of its blocks. After `deadline` (of `time.monotonic`) no pass begins and what is not whole is left out.
        """
        waiting = iter(candidates)
        self._arena = Arena(self.prompt_slots + self._scratch, self.cache.slots)
        self._draws, self._branches, self._decoded = {}, [], []
        self._on_decoded, self._on_partial = on_decoded, on_partial
        try:
            self._join(waiting)
            while self._branches and (deadline is None or time.monotonic() < deadline):
                self._check()
                self._pass()
                self._join(waiting)
        except _Enough:
            pass
        return self._decoded

    def _join(self, waiting: Iterator[int]) -> None:
        room = self.rows - sum(len(branch.members) for branch in self._branches)
        if members := list(islice(waiting, room)):
            size, mask = self.schedule.block_size, self.mask_id
            block = self.remainder + [mask] * (size - len(self.remainder))
            branch = _Branch(members, block, [0.0] * size, [0] * size)
            branch.forwards = branch.clock = self.prompt_forwards
            self._branches.append(branch)

    def _pass(self) -> None:
        """One pass of the network over what every branch needs next, and what follows from it."""
        branches = list(self._branches)
        chains = self._chains(branches)
        rows, wanted, places = self._rows(branches, chains)
        picks, uniforms, drawn = self._drawings(branches, chains, places)
        seen = self.network.forward_rows(rows, self.cache, wanted)
        best, sampled = predict(seen, self.mask_id, self.schedule, picks, uniforms)
        self.forwards += 1
        self.row_count += rows.count
        for branch in branches:
            branch.forwards += 1
        for branch, chain, at in zip(branches, chains, places, strict=True):
            greedy = [{place: best[row] for place, row in state.items()} for state in at]
            own = {
                key: {place: sampled[row] for place, row in found.items()}
                for key, found in drawn.get(id(branch), {}).items()
            }
            self._follow(branch, chain, greedy, own)

    def _chains(self, branches: Sequence[_Branch]) -> list[list[Link]]:
        """For each branch its state and, where they are worth their rows, guesses of what comes after it."""
        size = self.schedule.block_size
        chains: list[list[Link]] = [
            [] if branch.closing else [State(branch.number, tuple(branch.block))] for branch in branches
        ]
        if not self.speculate:
            return chains
        spare = MAX_ROWS - sum(size * (1 + (branch.pending is not None)) for branch in branches)
        for branch, chain in zip(branches, chains, strict=True):
            # What is left is shared by the branches that have not had theirs.
            spare -= size * self._extend(branch, chain, spare // size)
        return chains

    def _extend(self, branch: _Branch, chain: list[Link], room: int) -> int:
        """Append guesses to a branch's chain, `room` blocks at most; how many were."""
        size, rates = self.schedule.block_size, self.acceptance.rate
        before = len(chain)
        chance = 1.0
        source = "path"
        written = branch.history
        block, number = branch.block, branch.number
        states = guess_path(block, branch.left, self.schedule, branch.step) if branch.left else []
        ahead = 0
        while True:
            if not states:
                # Nothing is known of this block yet: earlier text may know it.
                if ahead == LOOKUP_BLOCKS or self._lookup is None:
                    break
                given = self.remainder if number == 0 else []
                need = size - len(given)
                others = [item.tokens for item in self._decoded] + [
                    other.history for other in self._branches if other is not branch
                ]
                proposed = self._lookup.propose(written, need, others)
                if len(proposed) < need:
                    break
                source, ahead = "lookup", ahead + 1
                full = [*given, *proposed]
                states = path_to(full, block, self.mask_id, self.schedule)
            for state in states[:-1]:
                chance *= rates[source]
                if room < 1 or not worth(chance, size, self._fixed_rows):
                    self.acceptance.forget(source)
                    return len(chain) - before
                chain.append(State(number, state, source))
                room -= 1
            full = list(states[-1])
            chance *= rates[source]
            generated = full[len(self.remainder) :] if number == 0 else full
            last = number + 1 >= self.blocks or any(token in self.stop_ids for token in generated)
            if last or room < 2 or not worth(chance, 2 * size, self._fixed_rows):
                if not last:
                    self.acceptance.forget(source)
                return len(chain) - before
            number += 1
            block = [self.mask_id] * size
            chain += [Clean(number - 1, tuple(full), source), State(number, tuple(block))]
            room -= 2
            written = [*written, *generated]
            states = []
        return len(chain) - before

    def _rows(
        self, branches: Sequence[_Branch], chains: Sequence[Sequence[Link]]
    ) -> tuple[Rows, list[int], list[list[dict[int, int]]]]:
        """The pass's rows; which of them have logits to tell; and for each state of each branch where those of its masks are."""
        size, mask, prompt = self.schedule.block_size, self.mask_id, self.prompt_slots
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        spans: list[list[tuple[int, int]]] = []
        wanted: list[int] = []
        places: list[list[dict[int, int]]] = []
        scratch = prompt

        def add(branch: _Branch, block: Sequence[int], number: int, state: bool) -> None:
            nonlocal scratch
            if state:
                first = scratch
                scratch += size
                seen = [(0, prompt), *self._spans(branch, number), (first, first + size)]
            else:
                first = self._slot(branch, number)
                seen = [(0, prompt), *self._spans(branch, number + 1)]
            start = prompt + number * size
            ids.extend(block)
            positions.extend(range(start, start + size))
            slots.extend(range(first, first + size))
            spans.extend([seen] * size)

        for branch, chain in zip(branches, chains, strict=True):
            found: list[dict[int, int]] = []
            if branch.pending is not None:
                add(branch, branch.pending, branch.number - 1, False)
            elif branch.closing:
                add(branch, branch.block, branch.number, False)
            for link in chain:
                if isinstance(link, State):
                    masks = [at for at, token in enumerate(link.block) if token == mask]
                    found.append({at: len(wanted) + index for index, at in enumerate(masks)})
                    wanted.extend(len(ids) + at for at in masks)
                add(branch, link.block, link.number, isinstance(link, State))
            places.append(found)
        return Rows.of(ids, positions, slots, spans), wanted, places

    def _drawings(
        self, branches: Sequence[_Branch], chains: Sequence[Sequence[Link]], places: Sequence[Sequence[dict[int, int]]]
    ) -> tuple[list[int], list[float], dict[int, dict[tuple[int, int], dict[int, int]]]]:
        """What is sampled: logit rows and draws, and for each branch, state and member where its samples will be."""
        rows: list[int] = []
        uniforms: list[float] = []
        drawn: dict[int, dict[tuple[int, int], dict[int, int]]] = {}
        if self.schedule.temperature == 0:
            return rows, uniforms, drawn
        for branch, at in zip(branches, places, strict=True):
            for depth, state in enumerate(at):
                for member in branch.members:
                    if member == 0:
                        continue
                    if member not in self._draws:
                        self._draws[member] = Draws(self.seed, member, self.schedule.block_size)
                    numbers = self._draws[member].of(branch.drawn + depth)
                    found = drawn.setdefault(id(branch), {}).setdefault((depth, member), {})
                    for place, row in state.items():
                        found[place] = len(rows)
                        rows.append(row)
                        uniforms.append(numbers[place])
        return rows, uniforms, drawn

    def _follow(
        self,
        branch: _Branch,
        chain: Sequence[Link],
        greedy: Sequence[dict[int, Prediction]],
        sampled: dict[tuple[int, int], dict[int, Prediction]],
    ) -> None:
        """Do the steps that the pass tells: that of the branch's state, and of each guess that it then turns out to be."""
        branch.pending = None
        if branch.closing:
            branch.closing = False
            branch.clock += 1
            self._close(branch)
            return
        depth, at = 0, 0
        while True:
            guess = chain[at + 1] if at + 1 < len(chain) else None
            self._step(branch, greedy[depth], sampled, depth, guess)
            full = self.mask_id not in branch.block
            right = guess is not None and guess.block == tuple(branch.block)
            if guess is not None:
                self.acceptance.learn(guess.source, right)
            if branch not in self._branches:
                return
            if not full:
                if not right:
                    return
                depth, at = depth + 1, at + 1
                continue
            if not self.fused:
                branch.closing = True
                return
            if not right:
                branch.pending = branch.block
            if not self._close(branch) or not right:
                return
            # The guess's keys and values are in their slots, and the state after it is the next block's first.
            depth, at = depth + 1, at + 2

    def _step(
        self,
        branch: _Branch,
        greedy: dict[int, Prediction],
        sampled: dict[tuple[int, int], dict[int, Prediction]],
        depth: int,
        guess: Link | None,
    ) -> None:
        """Reveal positions of a branch, and part the members that chose differently."""
        quota = self.schedule.quota(branch.step)
        groups: dict[tuple[int, ...], tuple[dict[int, Prediction], list[int]]] = {}
        for member in branch.members:
            predicted = sampled.get((depth, member), greedy)
            chosen = {at: predicted[at] for at in choose_positions(self.schedule, predicted, quota)}
            block = tuple(chosen[at].token if at in chosen else token for at, token in enumerate(branch.block))
            groups.setdefault(block, (chosen, []))[1].append(member)
        parts = list(groups.items())
        if guess is not None and guess.block in groups:
            # Those that a guess was right for keep the branch, whose guess it was.
            parts.sort(key=lambda part: part[0] != guess.block)
        targets = [branch, *(branch.fork(group) for _, (_, group) in parts[1:])]
        for target in targets[1:]:
            self._copy_slots(branch, target)
            self._branches.append(target)
        for target, (block, (chosen, group)) in zip(targets, parts, strict=True):
            target.members = group
            target.block = list(block)
            for at, prediction in chosen.items():
                target.confidences[at] = prediction.confidence
                target.steps[at] = target.clock
            target.left = {at: prediction for at, prediction in greedy.items() if block[at] == self.mask_id}
            target.clock += 1
            target.step += 1
            target.drawn += 1
        for target in targets:
            if self.fused and self._stops_early(target):
                self._finish(target, End.STOP)
            elif target is not branch and self.mask_id not in target.block:
                if self.fused:
                    target.pending = target.block
                    self._close(target)
                else:
                    target.closing = True

    def _close(self, branch: _Branch) -> bool:
        """A block is full: its tokens are part of the text. Whether the branch goes on, with the next block."""
        given = len(self.remainder) if branch.number == 0 else 0
        self._keep(branch, given)
        if (end := self._end(branch)) is not None:
            self._finish(branch, end)
            return False
        if self._on_partial is not None:
            self._on_partial(tuple(branch.members), branch.history)
        size = self.schedule.block_size
        branch.number += 1
        branch.step = 0
        branch.left = {}
        branch.block, branch.confidences, branch.steps = [self.mask_id] * size, [0.0] * size, [0] * size
        return True

    def _keep(self, branch: _Branch, given: int) -> None:
        branch.history += branch.block[given:]
        branch.history_confidences += branch.confidences[given:]
        branch.history_steps += branch.steps[given:]

    def _finish(self, branch: _Branch, end: End) -> None:
        self._branches.remove(branch)
        for first, count in branch.runs:
            self._arena.give(first, count)
        length = next((at for at, token in enumerate(branch.history) if token in self.stop_ids), len(branch.history))
        result = Decoded(
            tuple(branch.members),
            tuple(branch.history[:length]),
            tuple(branch.history_confidences[:length]),
            tuple(branch.history_steps[:length]),
            branch.forwards,
            end,
            tuple(branch.history[length:]),
            tuple(branch.history_steps[length:]),
        )
        self._decoded.append(result)
        self.tokens += len(result.tokens) * len(result.candidates)
        if self._on_decoded is not None and self._on_decoded(result):
            raise _Enough

    def _stops_early(self, branch: _Branch) -> bool:
        """An end token stands with no mask before it: what comes after cannot change the text."""
        given = len(self.remainder) if branch.number == 0 else 0
        for token in branch.block[given:]:
            if token == self.mask_id:
                return False
            if token in self.stop_ids:
                self._keep(branch, given)
                return True
        return False

    def _end(self, branch: _Branch) -> End | None:
        if any(token in self.stop_ids for token in branch.history[-self.schedule.block_size :]):
            return End.STOP
        if self._reached_suffix is not None and self._reached_suffix(branch.history):
            return End.SUFFIX
        return End.LENGTH if branch.number == self.blocks - 1 else None

    def _slot(self, branch: _Branch, number: int) -> int:
        """The first slot of a block of a branch; runs are cut at blocks."""
        offset = number * self.schedule.block_size
        for index, length in enumerate(self._run_slots):
            if index == len(branch.runs):
                branch.runs.append((self._arena.take(length), length))
            if offset < length:
                return branch.runs[index][0] + offset
            offset -= length
        raise AssertionError(f"block {number} of {self.blocks}")

    def _spans(self, branch: _Branch, blocks: int) -> list[tuple[int, int]]:
        """The slots of a branch's first blocks."""
        count, found = blocks * self.schedule.block_size, []
        for first, length in branch.runs:
            if count <= 0:
                break
            found.append((first, first + min(count, length)))
            count -= length
        return found

    def _copy_slots(self, source: _Branch, target: _Branch) -> None:
        for (first, length), used in zip(source.runs, self._spans(source, source.number), strict=False):
            start = self._arena.take(length)
            target.runs.append((start, length))
            count = used[1] - first
            for tensor in (self.cache.keys, self.cache.values):
                tensor[:, :, start : start + count] = tensor[:, :, first : first + count]
