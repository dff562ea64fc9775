"""Baselines and measurements of the documents: read from the workspace's history, and kept at hand for hints and hovers.

The history is a file that may be slow or locked, so everything that touches it runs on one thread of its own, in order.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import attrs
from attrs import frozen

from dice_lsp.history import History
from dice_lsp.records import Baseline, Measurement
from dice_lsp.sparkline import MAX_VALUES
from dice_lsp.workspace import FOLDER, WorkspaceFile

log = logging.getLogger(__name__)
T = TypeVar("T")
SWITCHED_OFF = "the history is switched off (dice.history), so measurements are kept only until the server ends"


@frozen
class Known:
    """What the history says of one kernel; measurements are oldest first."""

    baseline: Baseline | None = None
    measurements: tuple[Measurement, ...] = ()
    problem: str | None = None
    """Why there is no baseline although there should be one. Not kept on disk: the next check settles it."""


class Ledger:
    """`place_of(uri)` says where a document's history is kept; None keeps it in memory."""

    def __init__(self, place_of: Callable[[str], WorkspaceFile | None]) -> None:
        self._place_of = place_of
        self._thread = ThreadPoolExecutor(1, "history")
        self._stores: dict[Path | None, History] = {}
        self._known: dict[str, dict[str, Known]] = {}
        self._kept: dict[str, int] = {}
        """URI -> how often something was kept, so that a reading knows that it was overtaken."""

    def known(self, uri: str, kernel: str) -> Known:
        """What is at hand of a kernel."""
        return self._known.get(uri, {}).get(kernel, Known())

    def baselines(self, uri: str) -> Mapping[str, Baseline]:
        """The baselines at hand of a document's kernels."""
        known = self._known.get(uri, {})
        return {kernel: each.baseline for kernel, each in known.items() if each.baseline is not None}

    async def load(self, uri: str, kernels: Sequence[str]) -> str | None:
        """Read what the history says of these kernels. Returns one sentence if it is not kept on disk."""
        store, name = self._where(uri)

        def read() -> tuple[dict[str, Known], str | None]:
            history = self._open(store, to_write=False)
            if history is None:
                return dict.fromkeys(kernels, Known()), None
            baselines = history.baselines(name)
            found = {each: Known(baselines.get(each), history.last(name, each, limit=MAX_VALUES)) for each in kernels}
            return found, history.problem

        # What is kept while the thread reads is not in what it read yet: it must not be forgotten for that.
        while True:
            before = self._kept.get(uri, 0)
            found, problem = await self._do(read)
            if self._kept.get(uri, 0) == before:
                break
        known = self._known.setdefault(uri, {})
        known.update((each, attrs.evolve(new, problem=self.known(uri, each).problem)) for each, new in found.items())
        return SWITCHED_OFF if store is None and self._is_file(uri) else problem

    async def put(self, uri: str, kernel: str, measurement: Measurement) -> None:
        """Add a measurement."""
        self._keep(
            uri,
            kernel,
            lambda known: attrs.evolve(known, measurements=(*known.measurements, measurement)[-MAX_VALUES:]),
        )
        store, name = self._where(uri)
        await self._do(lambda: self._must_open(store).put(name, kernel, measurement))

    async def accept(self, uri: str, kernel: str, baseline: Baseline) -> str | None:
        """Make a baseline the kernel's. Returns one sentence if that is not kept on disk."""
        self._keep(uri, kernel, lambda known: attrs.evolve(known, baseline=baseline, problem=None))
        store, name = self._where(uri)

        def write() -> str | None:
            history = self._must_open(store)
            history.accept(name, kernel, baseline)
            return history.problem

        return await self._do(write)

    def note(self, uri: str, kernel: str, problem: str | None) -> None:
        """Say why a kernel has no baseline although it should, or that nothing is wrong any more."""
        if self.known(uri, kernel).problem != problem:
            self._keep(uri, kernel, lambda known: attrs.evolve(known, problem=problem))

    async def forget_baseline(self, uri: str, kernel: str) -> bool:
        """Remove a kernel's baseline; returns whether there was one."""
        had = self.known(uri, kernel).baseline is not None
        self._keep(uri, kernel, lambda known: attrs.evolve(known, baseline=None))
        store, name = self._where(uri)

        def remove() -> bool:
            history = self._open(store, to_write=False)
            return history is not None and history.forget_baseline(name, kernel)

        return await self._do(remove) or had

    def close_document(self, uri: str) -> None:
        """Drop what is at hand of a document; its history stays."""
        self._known.pop(uri, None)

    async def close(self) -> None:
        """Write what is waiting and close every history."""

        def close() -> None:
            for history in self._stores.values():
                history.close()
            self._stores.clear()

        await self._do(close)

    def _keep(self, uri: str, kernel: str, change: Callable[[Known], Known]) -> None:
        self._kept[uri] = self._kept.get(uri, 0) + 1
        known = self._known.setdefault(uri, {})
        known[kernel] = change(known.get(kernel, Known()))

    def _where(self, uri: str) -> tuple[Path | None, str]:
        place = self._place_of(uri)
        return (None, uri) if place is None else (place.store, place.name)

    @staticmethod
    def _is_file(uri: str) -> bool:
        return uri.startswith("file:")

    def _open(self, store: Path | None, *, to_write: bool) -> History | None:
        """The history of a store. Nothing is made in a workspace before there is something to keep."""
        if store not in self._stores:
            if store is not None and not to_write and not store.is_dir():
                return None
            if store is not None and store.name != FOLDER:
                with suppress(OSError):  # the history says what is wrong with the place
                    store.parent.mkdir(parents=True, exist_ok=True)
            self._stores[store] = History.open(store)
        return self._stores[store]

    def _must_open(self, store: Path | None) -> History:
        history = self._open(store, to_write=True)
        assert history is not None
        return history

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
