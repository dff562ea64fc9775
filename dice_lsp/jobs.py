"""Who works when: one queue per device, the newest request of a place wins, and every job ends exactly once.

A place is what a request is about, e.g. `check file:///a.cu` or `fill file:///a.cu 120`. Starting a job at a place where
another one is waiting or running cancels that one: its answer would describe a text that nobody looks at any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar

from attrs import frozen

from dice_lsp.records import CandidateReport, FillReport, KernelReport, Region, Sanitized

log = logging.getLogger(__name__)
T = TypeVar("T")


class JobEnd(StrEnum):
    """How a job ended. A job that has not ended has none of these."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Job(Generic[T]):
    """One piece of work. Await it for its result; that raises `asyncio.CancelledError` after a cancel."""

    def __init__(self, place: str, task: "asyncio.Task[T]") -> None:
        self.place = place
        self._task = task

    @property
    def end(self) -> JobEnd | None:
        if not self._task.done():
            return None
        if self._task.cancelled():
            return JobEnd.CANCELLED
        return JobEnd.FAILED if self._task.exception() is not None else JobEnd.DONE

    def cancel(self) -> None:
        """Ask the job to end. It answers at its next await; its children are told at once."""
        self._task.cancel()

    def on_end(self, callback: Callable[[JobEnd], None]) -> None:
        """Call `callback` once, when the job has ended in whatever way."""
        self._task.add_done_callback(lambda _: callback(self.end or JobEnd.CANCELLED))

    def __await__(self) -> Generator[Any, None, T]:
        # Shielded: whoever waits may be cancelled without ending the job for others.
        return asyncio.shield(self._task).__await__()


class Jobs:
    """The jobs of a session."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Lock] = {}
        self._by_place: dict[str, Job[Any]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    def start(self, place: str, work: Callable[[], Awaitable[T]], *, queue: str) -> Job[T]:
        """Run `work` once the jobs before it in `queue` have ended; an older job at the same place is cancelled."""
        if self._closed:
            raise RuntimeError("the session is over: no job can be started")
        if (older := self._by_place.get(place)) is not None:
            older.cancel()
        lock = self._queues.setdefault(queue, asyncio.Lock())

        async def in_turn() -> T:
            async with lock:
                return await work()

        task = asyncio.create_task(in_turn(), name=place)
        job = Job(place, task)
        self._by_place[place] = job
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(place, job, ended))
        return job

    def at(self, place: str) -> Job[Any] | None:
        """The job that runs or waits at a place."""
        return self._by_place.get(place)

    def cancel(self, prefix: str = "") -> int:
        """Cancel every job whose place starts with `prefix`; returns how many that were."""
        found = [job for place, job in self._by_place.items() if place.startswith(prefix)]
        for job in found:
            job.cancel()
        return len(found)

    async def close(self) -> None:
        """Cancel everything and wait until all have ended."""
        self._closed = True
        self.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, place: str, job: Job[Any], task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if self._by_place.get(place) is job:
            del self._by_place[place]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the job %s failed", place, exc_info=error)


class Fill:
    """The candidates of one region, kept until the user takes one, drops them, or their place is gone."""

    def __init__(self, number: int, region: Region, report: FillReport) -> None:
        self.number = number
        self.region = region
        self.report = report

    @property
    def uri(self) -> str:
        return self.region.document.uri

    def candidate(self, label: str) -> CandidateReport | None:
        return next((item for item in self.report.candidates if item.label == label), None)


@frozen
class SanitizedText:
    """What compute-sanitizer said, with the text that it was about, to find its lines again where that has moved."""

    sanitized: Sanitized
    kernel_line: int
    lines: Mapping[int, str]
    """Line of a finding -> its text."""


class Results:
    """What is known of the open documents: the last report of each kernel, and the fills on offer."""

    MAX_FILLS_PER_DOCUMENT = 16
    MAX_TEXTS_PER_KERNEL = 16
    MAX_SANITIZED = 1024

    def __init__(self) -> None:
        self._reports: dict[str, dict[str, dict[str, KernelReport]]] = {}
        self._fills: dict[int, Fill] = {}
        self._next_fill = 0
        self._sanitized: dict[str, SanitizedText] = {}

    def put_report(self, uri: str, report: KernelReport, key: str | None = None) -> None:
        """Store a report under the key of the text that was checked, by default its evidence's slice key."""
        texts = self._reports.setdefault(uri, {}).setdefault(report.name, {})
        key = report.evidence.slice_key if key is None else key
        texts.pop(key, None)
        texts[key] = report
        while len(texts) > self.MAX_TEXTS_PER_KERNEL:
            del texts[next(iter(texts))]

    def report(self, uri: str, kernel: str, key: str | None = None) -> KernelReport | None:
        """The report of exactly the text with this key, so that undo makes it valid again; without a key, the last one."""
        texts = self._reports.get(uri, {}).get(kernel, {})
        return texts.get(key) if key is not None else next(reversed(texts.values()), None)

    def change_reports(self, uri: str, kernel: str, change: Callable[[str, KernelReport], KernelReport | None]) -> None:
        """Replace each report of a kernel by `change(key, report)`; None forgets it."""
        texts = self._reports.get(uri, {}).get(kernel, {})
        changed = {key: change(key, report) for key, report in texts.items()}
        texts.clear()
        texts.update((key, report) for key, report in changed.items() if report is not None)

    def reports(self, uri: str) -> Sequence[KernelReport]:
        """The last report of each kernel."""
        return tuple(next(reversed(texts.values())) for texts in self._reports.get(uri, {}).values() if texts)

    def put_sanitized(self, evidence_key: str, found: SanitizedText) -> None:
        """Keep what compute-sanitizer said of what has this evidence key: it need not be asked again."""
        self._sanitized[evidence_key] = found
        while len(self._sanitized) > self.MAX_SANITIZED:
            del self._sanitized[next(iter(self._sanitized))]

    def sanitized(self, evidence_key: str) -> SanitizedText | None:
        return self._sanitized.get(evidence_key)

    def put_fill(self, region: Region, report: FillReport, number: int | None = None) -> Fill:
        """Store a fill, or replace the one of that number while its candidates come in."""
        if number is None:
            self._next_fill += 1
            number = self._next_fill
        fill = self._fills[number] = Fill(number, region, report)
        mine = [known for known in self._fills.values() if known.uri == fill.uri]
        for old in mine[: -self.MAX_FILLS_PER_DOCUMENT]:
            del self._fills[old.number]
        return fill

    def fill(self, number: int) -> Fill | None:
        return self._fills.get(number)

    def fills(self, uri: str) -> Sequence[Fill]:
        """The fills of a document, newest first."""
        return sorted((fill for fill in self._fills.values() if fill.uri == uri), key=lambda fill: -fill.number)

    def drop_fill(self, number: int) -> bool:
        return self._fills.pop(number, None) is not None

    def forget(self, uri: str) -> None:
        """Forget everything about a document that was closed."""
        self._reports.pop(uri, None)
        for fill in self.fills(uri):
            del self._fills[fill.number]
