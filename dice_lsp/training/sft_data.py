"""What fine-tuning reads, in an order that the seed decides alone.

A source numbers its samples without end. They are taken in chunks: chunk k holds a fixed count of each source's next
samples, and is packed into rows by itself. So row r of chunk k is a function of the seed, k and r and of nothing else,
however many processes prepare chunks; and the place where a run stopped is two numbers.
"""

import multiprocessing
import os
import random
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
from attrs import define, frozen

from dice_lsp.diffusion.prompt import DiceLayout, Layout
from dice_lsp.pipeline import fill_request
from dice_lsp.records import Cheating, FillRequest, Unsafe, Wrong
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.training.block_diffusion import Corruption, Row, Sample
from dice_lsp.training.examples import make_example
from dice_lsp.training.trainee import TrainingError

CHUNK = 256
WAITING = 24
"""Documents among which the packer looks for the longest that still fits."""
SEEDS_OF_A_RUN = 1 << 32
HELD_OUT_SEED = 1 << 40
"""Seeds from here on are never trained on, as in `tiny`."""
HELD_OUT_RUN = HELD_OUT_SEED // SEEDS_OF_A_RUN
"""The seed of a run whose exchanges are never trained on."""
PLAIN_SHARE = 0.25
WHOLE = 1 << 30
"""A budget that no prompt exceeds: a layout then leaves nothing out, and what is too long for a row is dropped whole."""


@frozen
class Exchange:
    """What is asked and what should be answered, before any layout."""

    request: FillRequest
    middle: str


@frozen
class Conversation:
    """A whole exchange of a published record, for checkpoints that write whole files."""

    prompt: str
    response: str


def _seed_of(run: int, number: int) -> int:
    """The generator's seed for a number of a run. Only the run of held-out seeds leaves the range that is trained on."""
    seed = run * SEEDS_OF_A_RUN + number
    return seed if run == HELD_OUT_RUN else seed % HELD_OUT_SEED


class Source(Protocol):
    """Numbered exchanges."""

    @property
    def size(self) -> int | None:
        """Exchanges in one epoch; None when they never end."""

    def exchange(self, number: int) -> "Exchange | Conversation":
        """The same for ever for a number (and the seed that the source was made with)."""


@frozen
class GeneratedSource:
    """The kernel generator's examples."""

    seed: int

    @property
    def size(self) -> None:
        return None

    def exchange(self, number: int) -> Exchange:
        example = make_example(_seed_of(self.seed, number))
        return Exchange(example.request, example.middle)


@frozen
class ListSource:
    """Exchanges in memory, each epoch in an order of its own."""

    exchanges: tuple["Exchange | Conversation", ...]
    seed: int

    @property
    def size(self) -> int:
        return len(self.exchanges)

    def exchange(self, number: int) -> "Exchange | Conversation":
        epoch, at = divmod(number, len(self.exchanges))
        order = list(range(len(self.exchanges)))
        random.Random(f"{self.seed} epoch {epoch}").shuffle(order)
        return self.exchanges[order[at]]


@frozen
class PairSource:
    """Families of kernels that are known twice: mostly the fast bodies, and the plain ones so that none is unlearned."""

    seed: int

    @property
    def size(self) -> None:
        return None

    def exchange(self, number: int) -> Exchange:
        from dice_lsp.training.families import make_pair

        pair = make_pair(_seed_of(self.seed, number))
        rng = random.Random(number)
        body = pair.plain if not pair.fast or rng.random() < PLAIN_SHARE else rng.choice(pair.fast).body
        region = pair.region()
        assert region.kernel is not None
        model = parse(region.document.text)
        spec = launch_spec(region.document.text, region.kernel, model)
        return Exchange(attrs.evolve(fill_request(region, model, spec, 1, 0), middle=""), body)


def source_named(name: str, seed: int) -> Source:
    """`generated`, `pairs`, or the records of a file. Raises `TrainingError` when there is no such file or it cannot be read."""
    if name == "generated":
        return GeneratedSource(seed)
    if name == "pairs":
        return PairSource(seed)
    if not Path(name).is_file():
        raise TrainingError(f"there is no file {name}: --data takes a file of records, `generated` or `pairs`")
    exchanges = read_exchanges(Path(name))
    if not exchanges:
        raise TrainingError(f"{name} holds no records that were not refused, so nothing can be learned from it")
    return ListSource(exchanges, seed)


def read_exchanges(path: Path) -> tuple["Exchange | Conversation", ...]:
    """The CuKe records of a file but those that the worker refused. Raises `TrainingError`, one sentence with the line's number."""
    from dice_lsp.dataset.cuke import CukeError, read_records, training_request
    from dice_lsp.dataset.exchange import published

    exchanges: list[Exchange | Conversation] = []
    try:
        for record in read_records(path):
            if isinstance(record.verdict, (Wrong, Unsafe, Cheating)):
                continue
            if record.whole_file or record.reference_kind == "pytorch":
                both = published(record)
                exchanges.append(Conversation(both["prompt"], both["response"]))
            else:
                exchanges.append(Exchange(training_request(record), record.middle))
    except CukeError as error:
        raise TrainingError(str(error)) from error
    return tuple(exchanges)


def sample_of(layout: Layout, exchange: "Exchange | Conversation") -> Sample | None:
    """An exchange in a layout's tokens; None for one that the layout cannot say, or that has no answer."""
    if isinstance(exchange, Conversation):
        if not isinstance(layout, DiceLayout) or not exchange.response.strip():
            return None
        asked, answered = layout.conversation(exchange.prompt, exchange.response)
        return Sample(tuple(asked), tuple(answered))
    if not exchange.middle.strip():
        return None
    prompt, answer = layout.prompt(exchange.request, WHOLE), layout.answer(exchange.request, exchange.middle)
    return Sample(tuple(prompt), tuple(answer)) if len(answer) > 1 else None


@frozen
class Part:
    """A source and how many of a chunk's samples are its own."""

    source: Source
    count: int


@frozen
class Place:
    """Where a run is in its data: the next row."""

    chunk: int = 0
    row: int = 0


@frozen
class Plan:
    """Everything that decides the rows of a run."""

    parts: tuple[Part, ...]
    layout: Layout
    corruption: Corruption
    seed: int
    row_length: int
    cutoff: int
    """The longest prompt and answer together, in tokens: longer samples are dropped, as in the published recipe."""
    epochs: float | None = None
    """Ends the rows when the first part has been taken so often; None for never."""

    def exhausted(self, chunk: int) -> bool:
        """Whether a chunk begins behind the last epoch."""
        part = self.parts[0]
        if self.epochs is None or part.source.size is None:
            return False
        return chunk * part.count >= self.epochs * part.source.size

    def rows(self, chunk: int) -> list[Row]:
        """A chunk's samples with their noise, packed: the longest of the waiting documents that still fits is next."""
        rng = random.Random(f"{self.seed} chunk {chunk}")
        waiting: deque[tuple[Sample, int, int]] = deque()
        for sample in self._samples(chunk, rng):
            size = self.corruption.block_size(rng)
            length = self.corruption.length(sample, size)
            if length <= self.row_length and len(sample.prompt) + len(sample.answer) <= self.cutoff:
                waiting.append((sample, size, length))
        rows: list[Row] = []
        while waiting:
            documents: list[tuple[Sample, int]] = []
            room = self.row_length
            while fitting := [at for at in range(min(WAITING, len(waiting))) if waiting[at][2] <= room]:
                # The oldest opens a row, so that none waits for ever.
                at = max(fitting, key=lambda at: waiting[at][2]) if documents else 0
                sample, size, length = waiting[at]
                del waiting[at]
                documents.append((sample, size))
                room -= length
            noise = random.Random(f"{self.seed} chunk {chunk} row {len(rows)}")
            rows.append(self.corruption.row(documents, self.row_length, noise))
        return rows

    def _samples(self, chunk: int, rng: random.Random) -> Iterator[Sample]:
        samples: list[Sample] = []
        for at, part in enumerate(self.parts):
            first = chunk * part.count
            last = first + part.count
            if at == 0 and self.epochs is not None and part.source.size is not None:
                last = min(last, int(self.epochs * part.source.size))
            found = (sample_of(self.layout, part.source.exchange(number)) for number in range(first, last))
            samples += [sample for sample in found if sample is not None]
        rng.shuffle(samples)
        return iter(samples)


@define
class Stream:
    """Rows one after another from a place on, each with the place behind it.

    With `workers` processes chunks are made ahead; the order is the same with any number of them.
    """

    plan: Plan
    place: Place
    workers: int = 0

    def __iter__(self) -> Iterator[tuple[Row, Place]]:
        empty = 0
        for number, rows in self._chunks():
            # A source of which nothing fits would be searched for ever.
            empty = 0 if rows else empty + 1
            if empty == 2:
                return
            first = self.place.row if number == self.place.chunk else 0
            for at in range(first, len(rows)):
                yield rows[at], Place(number, at + 1) if at + 1 < len(rows) else Place(number + 1)

    def _chunks(self) -> Iterator[tuple[int, list[Row]]]:
        number = self.place.chunk
        if self.workers == 0:
            while not self.plan.exhausted(number):
                yield number, self.plan.rows(number)
                number += 1
            return
        # Forked children are handed the plan as it is; it need not be picklable.
        context = multiprocessing.get_context("fork")
        with context.Pool(self.workers, initializer=_begin, initargs=(self.plan,)) as pool:
            ahead: deque[tuple[int, Any]] = deque()
            while True:
                while len(ahead) < 2 * self.workers and not self.plan.exhausted(number):
                    ahead.append((number, pool.apply_async(_rows_of, (number,))))
                    number += 1
                if not ahead:
                    return
                at, promise = ahead.popleft()
                yield at, promise.get()


_plan: Plan | None = None
"""The plan of a child process."""


def _begin(plan: Plan) -> None:
    global _plan
    _plan = plan
    os.nice(5)
    # An interrupt is for the run: it ends the pool when it has saved what it has.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _rows_of(chunk: int) -> list[Row]:
    assert _plan is not None
    return _plan.rows(chunk)


def parts_of(named: Sequence[tuple[str, float]], make: Callable[[str], Source], chunk: int = CHUNK) -> tuple[Part, ...]:
    """Parts from names with their shares; a share of 0.25 is a quarter of a chunk's samples, but one at least."""
    total = sum(share for _, share in named)
    return tuple(Part(make(name), max(1, round(chunk * share / total))) for name, share in named)
