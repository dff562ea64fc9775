"""What a response is worth: nothing unless the worker verified it; then half, and up to the other half by measured speed.

The worker's verdict is the whole judgement, so whatever it refuses (wrong, unsafe, cheating, not compiled, not verified,
text that no fill may hold) earns as little as nonsense does. Where a GPU is, a response must be verified twice, by the
emulation and on the GPU: each sees tricks that the other cannot. Speed counts by the low end of its measured interval, so
noise earns nothing; and it is bounded, so that a clock that could be deceived once would not drown everything else.
"""

import asyncio
import math
import re
from collections.abc import Mapping

import attrs
from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.records import (
    Compiled,
    CompileFailed,
    Faster,
    Judged,
    JudgeJob,
    Same,
    Slower,
    Verified,
    kind_of,
)
from dice_lsp.source.closing import close_blocks
from dice_lsp.source.screen import screen_fill
from dice_lsp.training.judging import Judges, beside, job_of
from dice_lsp.training.rl_tasks import Place

FULL_SPEED_UP = 4.0
"""This many times as fast as the plain solution earns everything."""
RIGHT = 0.5
"""What a right kernel earns where speed counts."""
REMEMBERED = 100_000
GPU_WORKERS = 3
"""Workers that take turns on the GPU."""


@frozen
class Reward:
    """What one response earns, and why."""

    value: float
    """0 to 1."""
    kind: str
    """`verified`, or what it was refused with: `wrong`, `unsafe`, `cheating`, `unverified`, `no_compile`, `refused`,
    `unfinished`."""
    speed_up: float | None = None
    """Low end of the measured ratio to the plain solution."""


UNFINISHED = Reward(0.0, "unfinished")
"""Of a response that reached the longest length without an end."""


def reward_of(judged: Judged) -> Reward:
    """The reward for a judgement.

    A verified kernel earns 1 on the host, where there is no speed. On a GPU it earns `RIGHT`, and more as the logarithm of
    its speed-up grows to that of `FULL_SPEED_UP`; slower than the plain solution is no less than `RIGHT`.
    """
    if not isinstance(judged.build, Compiled):
        return Reward(0.0, "no_compile" if isinstance(judged.build, CompileFailed) else "unverified")
    verdict = judged.verdict
    if not isinstance(verdict, Verified):
        return Reward(0.0, kind_of(type(verdict)))
    if verdict.device == "host":
        return Reward(1.0, "verified")
    comparison = judged.comparison
    if not isinstance(comparison, (Faster, Same, Slower)) or not comparison.low > 0:
        return Reward(RIGHT, "verified")
    share = min(1.0, max(0.0, math.log2(comparison.low) / math.log2(FULL_SPEED_UP)))
    return Reward(RIGHT + (1 - RIGHT) * share, "verified", comparison.low)


class Referee:
    """Workers that turn responses into rewards while others are still being sampled.

    Several workers judge on the host side by side; what they verify goes to the one that has the GPU, if there is one. The
    same text at the same place is judged once.
    """

    def __init__(self, settings: Settings, workers: int) -> None:
        """`settings` say where kernels run: with `backend` `host` no GPU is looked for."""
        self.settings = settings
        self._host = Judges(attrs.evolve(settings, backend="host"), workers)
        # One kernel runs on the card at a time, which the workers see to themselves; the others compile meanwhile.
        self._gpus = [Judges(settings, 1) for _ in range(GPU_WORKERS)] if settings.backend != "host" else []
        self._free: asyncio.Queue[Judges] = asyncio.Queue()
        self._known: dict[tuple[str, str], asyncio.Task[Reward]] = {}
        self.judged = 0
        """Texts that a worker was asked about."""

    async def start(self) -> None:
        """Start the workers. Raises `ChildDied` when they cannot run here."""
        await self._host.start()
        await asyncio.gather(*(pool.start() for pool in self._gpus))
        if self._gpus and not self._gpus[0].on_gpu:
            await asyncio.gather(*(pool.close() for pool in self._gpus))
            self._gpus = []
        for pool in self._gpus:
            self._free.put_nowait(pool)

    async def close(self) -> None:
        """End the workers and what they were judging."""
        running = [task for task in self._known.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(pool.close() for pool in (self._host, *self._gpus)))

    @property
    def device(self) -> str:
        """Where the last word is said: a GPU's name or `host`."""
        return self._gpus[0].device if self._gpus else self._host.device

    async def reward(self, place: Place, middle: str) -> Reward:
        """The reward of a text for a place's region."""
        middle = close_blocks(place.region, middle)
        # Lines are kept apart: a line end may be all that ends a comment.
        key = (place.key, "\n".join(" ".join(line.split()) for line in middle.splitlines() if line.strip()))
        task = self._known.get(key)
        if task is None or _is_open(task):
            while len(self._known) >= REMEMBERED:
                self._known.pop(next(iter(self._known)))
            task = self._known[key] = asyncio.create_task(self._judge(place, middle), name=f"judging {place.key}")
        return await asyncio.shield(task)

    async def _judge(self, place: Place, middle: str) -> Reward:
        if not re.search(r"\w", middle) or screen_fill(place.region, middle) is not None:
            return Reward(0.0, "refused")
        try:
            job = self._job(place, middle)
        except ValueError:
            return Reward(0.0, "refused")  # with it, the file has not one kernel of that name any more
        self.judged += 1
        alone = attrs.evolve(job, benchmark=False)
        if job.spec.reference is not None:
            alone = attrs.evolve(alone, baseline_text=None, baseline_kernel=None)  # one compile less
        found = reward_of(await self._host.judge(alone))
        if not self._gpus or not found.value:
            return found
        pool = await self._free.get()
        try:
            return reward_of(await pool.judge(job))
        finally:
            self._free.put_nowait(pool)

    def _job(self, place: Place, middle: str) -> JudgeJob:
        text = place.region.prefix + middle + place.region.suffix
        job = job_of(text, place.path, place.task.kernel, self.settings, benchmark=True)
        # The launch and the reference are those of the file before anybody wrote into it.
        return beside(attrs.evolve(job, spec=place.spec, reference_text=place.task.text), place.task.baseline)


def _is_open(task: asyncio.Task[Reward]) -> bool:
    """Whether a judgement that has ended says nothing for good: why a text is not verified may be the machine's fault."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().kind == "unverified"


def counts(rewards: Mapping[str, int]) -> str:
    """Kinds of rewards in words, the most frequent first: `12 verified, 3 wrong`."""
    return ", ".join(f"{number} {kind}" for kind, number in sorted(rewards.items(), key=lambda item: -item[1]))
