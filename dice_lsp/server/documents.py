"""The open documents: their present text at once, and what it says as soon as it has been read.

Reading a text (kernels, keys, directives, headers) happens on one thread beside the loop, always of the newest text.
Features answer from the last snapshot; one that must have the present text waits for it with `exact`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.records import Document, Kernel, Problem
from dice_lsp.server import from_lsp
from dice_lsp.server.headers import Headers, HeaderSet
from dice_lsp.server.keys import KernelKeys, settings_context
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.embedded import document_of
from dice_lsp.source.flags import device_flags
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.positions import LineIndex

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
VERSIONS_KEPT = 8


@frozen(eq=False)
class Snapshot:
    """One version of a document and everything that its text says."""

    document: Document
    path: str
    index: LineIndex
    model: SourceModel
    keys: Mapping[str, str]
    """Kernel id -> key of all that decides its evidence, see `keys`."""
    problems: tuple[Problem, ...]
    headers: HeaderSet

    def kernel(self, name: str) -> Kernel | None:
        """By its id, or by its name where that is enough."""
        kernels = self.model.kernels
        return next((kernel for kernel in kernels if kernel.id == name), None) or next(
            (kernel for kernel in kernels if kernel.name == name), None
        )

    def kernel_at(self, start: int, end: int) -> Kernel | None:
        """The kernel that holds `start:end`, white space and comments before it not included."""
        return next((kernel for kernel in self.model.kernels if kernel.start <= start and end <= kernel.end), None)


class _Entry:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.versions: deque[Document] = deque([document], maxlen=VERSIONS_KEPT)
        self.snapshot: Snapshot | None = None
        self.reading = False
        self.current = asyncio.Event()
        """Set while `snapshot` is of the present text."""
        self.again = False
        self.unreadable: Document | None = None
        """The text that could not be read, which is a bug of ours: nothing may wait for it."""


class Documents:
    """`on_snapshot(old, new)` is called on the loop each time a text has been read; `settings(uri)` are a document's."""

    def __init__(
        self, on_snapshot: Callable[[Snapshot | None, Snapshot], None], settings: Callable[[str], Settings]
    ) -> None:
        self._entries: dict[str, _Entry] = {}
        self._on_snapshot = on_snapshot
        self._settings = settings
        self._headers = Headers()
        self._keys = KernelKeys()
        self._thread = ThreadPoolExecutor(1, "read")
        self._tasks: set[asyncio.Task[None]] = set()

    def uris(self) -> Sequence[str]:
        return tuple(self._entries)

    def put(self, uri: str, version: int, text: str) -> None:
        """The text of a document that was opened or changed; of a Python file, its CUDA is read."""
        document = document_of(uri, version, text)
        entry = self._entries.get(uri)
        if entry is None:
            entry = self._entries[uri] = _Entry(document)
        else:
            entry.document = document
            entry.versions.append(document)
        self._read_soon(entry)

    def close(self, uri: str) -> None:
        entry = self._entries.pop(uri, None)
        if entry is not None:
            entry.current.set()

    def read_again(self, uri: str) -> None:
        """Read a document whose text is the same but whose headers may have changed."""
        if (entry := self._entries.get(uri)) is not None:
            entry.again = True
            self._read_soon(entry)

    def present(self, uri: str) -> Document | None:
        """The newest text."""
        entry = self._entries.get(uri)
        return None if entry is None else entry.document

    def at_version(self, uri: str, version: int) -> Document | None:
        """One of the last few versions."""
        entry = self._entries.get(uri)
        return None if entry is None else next((item for item in entry.versions if item.version == version), None)

    def last(self, uri: str) -> Snapshot | None:
        """The last snapshot, which may be of an older text."""
        entry = self._entries.get(uri)
        return None if entry is None else entry.snapshot

    async def fresh(self, uri: str, patience_s: float) -> Snapshot | None:
        """A snapshot of the present text if it is there in time, else the last one."""
        entry = self._entries.get(uri)
        if entry is None:
            return None
        if not entry.current.is_set():
            try:
                await asyncio.wait_for(entry.current.wait(), patience_s)
            except TimeoutError:
                pass
        return self.last(uri)

    async def exact(self, uri: str) -> Snapshot | None:
        """A snapshot of the present text, however long that takes; None once the document is closed."""
        while (entry := self._entries.get(uri)) is not None:
            await entry.current.wait()
            if entry.unreadable is entry.document:
                return None
            if entry.current.is_set() and entry.snapshot is not None and self._entries.get(uri) is entry:
                return entry.snapshot
        return None

    def is_current(self, snapshot: Snapshot) -> bool:
        present = self.present(snapshot.document.uri)
        return present is not None and present.version == snapshot.document.version

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads text on the reading thread: long texts must not stop the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args, **kwargs))

    def _read_soon(self, entry: _Entry) -> None:
        entry.current.clear()
        if not entry.reading:
            entry.reading = True
            task = asyncio.get_running_loop().create_task(self._read(entry), name=f"read {entry.document.uri}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, entry: _Entry) -> None:
        try:
            while self._entries.get(entry.document.uri) is entry:
                document, entry.again = entry.document, False
                path = from_lsp.path_of(document.uri)
                snapshot = await self.in_thread(self._take, document, path, self._settings(document.uri))
                if self._entries.get(document.uri) is not entry:
                    return
                old, entry.snapshot = entry.snapshot, snapshot
                if entry.document is document and not entry.again:
                    entry.current.set()
                self._on_snapshot(old, snapshot)
                if entry.current.is_set():
                    return
        except Exception:
            log.exception("reading %s failed", entry.document.uri)
            entry.unreadable = entry.document
            entry.current.set()
        finally:
            entry.reading = False

    def _take(self, document: Document, path: str, settings: Settings) -> Snapshot:
        text = document.text
        model = parse(text)
        headers = self._headers.of(text, path, device_flags(path, settings).include_dirs)
        keys = self._keys.of(model, f"{settings_context(settings)} {headers.digest}")
        problems = [problem for kernel in model.kernels for problem in parse_directives(text, kernel).problems]
        return Snapshot(document, path, LineIndex(document.shown), model, keys, tuple(problems), headers)
