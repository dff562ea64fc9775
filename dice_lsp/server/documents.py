"""The open documents: their present version at once, and what its text says as soon as it has been read.

Reading a text (the CUDA of a Python file, kernels, keys, directives, headers) happens on one thread beside the loop,
always of the newest text. Features answer from the last snapshot; one that must have the present text waits for it with
`exact`, or with `present` where the document alone is enough.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.flag_finder import FoundFlags, shared_finder
from dice_lsp.include_graph import Headers, HeaderSet
from dice_lsp.project_files import ProjectFiles, project_at
from dice_lsp.records import Document, Kernel, Problem
from dice_lsp.server import from_lsp
from dice_lsp.server.keys import KernelKeys, settings_context
from dice_lsp.source.directives import Directive, parse_directives, stray_directives
from dice_lsp.source.embedded import document_of, is_python
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.positions import LineIndex
from dice_lsp.source.python_calls import calls_of

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
    directives: Mapping[str, Directive]
    """Kernel id -> what its `//dice:` comments say; only those kernels that have any."""
    headers: HeaderSet
    flags: FoundFlags
    """What a compiler is told of this file, by its project and the settings."""
    project: ProjectFiles | None = None
    """The files around it, where a program that launches its kernels may be."""

    def kernel(self, name: str) -> Kernel | None:
        """By its id, or by its name where that is enough."""
        kernels = self.model.kernels
        return next((kernel for kernel in kernels if kernel.id == name), None) or next(
            (kernel for kernel in kernels if kernel.name == name), None
        )

    def kernel_at(self, start: int, end: int) -> Kernel | None:
        """The kernel that holds `start:end`, white space and comments before it not included."""
        return next((kernel for kernel in self.model.kernels if kernel.start <= start and end <= kernel.end), None)


class _Version:
    """One version as the client told of it. Its document is made on the reading thread if that takes a parser."""

    def __init__(self, uri: str, number: int, text: str) -> None:
        self.uri, self.number, self.text = uri, number, text
        self.document = None if is_python(uri) else Document(uri, number, text)

    def read(self) -> Document:
        """Always the same document. Called on the reading thread only."""
        if self.document is None:
            self.document = document_of(self.uri, self.number, self.text)
        return self.document


class _Entry:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.versions: deque[_Version] = deque(maxlen=VERSIONS_KEPT)
        """Newest last."""
        self.snapshot: Snapshot | None = None
        self.reading = False
        self.current = asyncio.Event()
        """Set while `snapshot` is of the present text."""
        self.again = False
        self.unreadable: _Version | None = None
        """The text that could not be read, which is a bug of ours: nothing may wait for it."""

    @property
    def newest(self) -> _Version:
        return self.versions[-1]


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
        """The text of a document that was opened or changed. Nothing is read here: this runs at every key press."""
        entry = self._entries.get(uri)
        if entry is None:
            entry = self._entries[uri] = _Entry(uri)
        entry.versions.append(_Version(uri, version, text))
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

    def version(self, uri: str) -> int | None:
        """The number of the newest version; None for a document that is not open."""
        entry = self._entries.get(uri)
        return None if entry is None else entry.newest.number

    async def present(self, uri: str) -> Document | None:
        """The newest text: at once where it is all CUDA, as soon as its CUDA has been found where it is a Python file."""
        while (entry := self._entries.get(uri)) is not None:
            newest = entry.newest
            document = await self._document(newest)
            if self._entries.get(uri) is entry and entry.newest is newest:
                return document
        return None

    async def at_version(self, uri: str, version: int) -> Document | None:
        """One of the last few versions."""
        entry = self._entries.get(uri)
        versions = () if entry is None else entry.versions
        found = next((item for item in versions if item.number == version), None)
        return None if found is None else await self._document(found)

    async def _document(self, version: _Version) -> Document:
        return await self.in_thread(version.read) if version.document is None else version.document

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
            if entry.unreadable is entry.newest:
                return None
            if entry.current.is_set() and entry.snapshot is not None and self._entries.get(uri) is entry:
                return entry.snapshot
        return None

    def is_current(self, snapshot: Snapshot) -> bool:
        return self.version(snapshot.document.uri) == snapshot.document.version

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads text on the reading thread: long texts must not stop the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args, **kwargs))

    def _read_soon(self, entry: _Entry) -> None:
        entry.current.clear()
        if not entry.reading:
            entry.reading = True
            task = asyncio.get_running_loop().create_task(self._read(entry), name=f"read {entry.uri}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, entry: _Entry) -> None:
        try:
            while self._entries.get(entry.uri) is entry:
                version, entry.again = entry.newest, False
                path = from_lsp.path_of(entry.uri)
                snapshot = await self.in_thread(self._take, version, path, self._settings(entry.uri))
                if self._entries.get(entry.uri) is not entry:
                    return
                old, entry.snapshot = entry.snapshot, snapshot
                if entry.newest is version and not entry.again:
                    entry.current.set()
                self._on_snapshot(old, snapshot)
                if entry.current.is_set():
                    return
        except Exception:
            log.exception("reading %s failed", entry.uri)
            entry.unreadable = entry.newest
            entry.current.set()
        finally:
            entry.reading = False

    def _take(self, version: _Version, path: str, settings: Settings) -> Snapshot:
        document = version.read()
        text = document.text
        model = parse(text)
        flags = shared_finder().find(path, settings)
        headers = self._headers.of(text, path, flags.flags.project_dirs)
        context = f"{settings_context(settings)} {headers.digest} {flags.digest}"
        project = project_at(path, settings)
        keys = self._keys.of(model, context, calls_of(document), project, path)
        directives = {kernel.id: parse_directives(text, kernel) for kernel in model.kernels}
        directives = {name: directive for name, directive in directives.items() if directive.comments}
        read = {comment for directive in directives.values() for comment in directive.comments}
        problems = [problem for found in directives.values() for problem in (*found.problems, *found.remarks)]
        # Two kernels of one name share the directives at their forward declarations.
        problems = list(dict.fromkeys([*problems, *stray_directives(model, read)]))
        return Snapshot(
            document, path, LineIndex(document.shown), model, keys, tuple(problems), directives, headers, flags, project
        )
