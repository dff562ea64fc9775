"""Headers that change outside the editor: the kernels that include them become stale and are checked again.

Folders are watched, not files, because editors and version control replace files. What counts is a header's content:
a file that was only touched changes nothing.
"""

import asyncio
import logging
import os
from collections.abc import Mapping

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from dice_lsp.server.documents import Snapshot
from dice_lsp.server.headers import HeaderSet
from dice_lsp.server.on_save import start_check
from dice_lsp.server.session import DiceServer

POLL_S = 3.0
log = logging.getLogger(__name__)
SETTLE_S = 0.2
"""A header that is being written changes several times; it is read once it has been quiet for this long."""


class HeaderWatch(FileSystemEventHandler):
    """Watches the folders of the headers that open documents include."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observer: BaseObserver | None = None
        self._watches: dict[str, ObservedWatch] = {}
        self._followed: dict[str, HeaderSet] = {}
        self._folders: frozenset[str] = frozenset()
        self._interesting: frozenset[str] = frozenset()
        self._changed: set[str] = set()
        self._waiting: asyncio.TimerHandle | None = None

    def follow(self, uri: str, headers: HeaderSet | None) -> None:
        """Watch the headers of one document; None ends that. Called on the loop."""
        if self._followed.get(uri) == headers:
            return
        if headers is None:
            del self._followed[uri]
        else:
            self._followed[uri] = headers
        self._interesting = frozenset().union(*(each.paths | each.missing for each in self._followed.values()))
        self._loop = asyncio.get_running_loop()
        folders = frozenset().union(*(each.folders for each in self._followed.values()))
        if folders != self._folders:
            self._folders = folders
            self._server.spawn(self._server.documents.in_thread(self._rewatch, folders), "watch headers")

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._observer is not None:
            self._observer.stop()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called on the observer's thread."""
        if event.is_directory or event.event_type in ("opened", "closed_no_write"):
            return
        paths = {os.path.normpath(os.fsdecode(path)) for path in (event.src_path, event.dest_path) if path}
        paths &= self._interesting
        if paths and self._loop is not None:
            self._loop.call_soon_threadsafe(self._note, paths)

    def _rewatch(self, folders: frozenset[str]) -> None:
        """Bring the observer in line with what is followed. On the reading thread: it looks at the disk."""
        wanted = {folder for folder in folders if os.path.isdir(folder)}
        for folder in set(self._watches) - wanted:
            assert self._observer is not None
            self._observer.unschedule(self._watches.pop(folder))
        for folder in wanted - set(self._watches):
            try:
                if self._observer is None:
                    self._observer = _started(Observer())
                self._watches[folder] = self._observer.schedule(self, folder, recursive=False)
            except FileNotFoundError:
                log.info("%s went away before it was watched", folder)
            except OSError as error:
                # The machine has no notifications left (inotify's limits), so look from time to time instead.
                log.warning("folders are looked at every few seconds instead of watched: %s", error)
                if self._observer is not None:
                    self._observer.stop()
                self._observer = _started(PollingObserver(timeout=POLL_S))
                self._watches = {each: self._observer.schedule(self, each, recursive=False) for each in wanted}
                return

    def _note(self, paths: set[str]) -> None:
        self._changed |= paths
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.get_running_loop().call_later(SETTLE_S, self._settled)

    def _settled(self) -> None:
        changed, self._changed, self._waiting = self._changed, set(), None
        for uri in self._server.documents.uris():
            snapshot = self._server.documents.last(uri)
            if snapshot is not None and changed & (snapshot.headers.paths | snapshot.headers.missing):
                self._server.documents.read_again(uri)


def _started(observer: BaseObserver) -> BaseObserver:
    observer.daemon = True
    observer.start()
    return observer


def register(server: DiceServer) -> HeaderWatch:
    watch = HeaderWatch(server)

    def follow(old: Snapshot | None, new: Snapshot) -> None:
        uri = new.document.uri
        watch.follow(uri, new.headers)
        if old is not None and old.headers.digest != new.headers.digest and server.settings_of(uri).check_on_save:
            if _changed_keys(old.keys, new.keys):
                server.refresh()
                server.spawn(start_check(server, uri), "check after a header changed")

    server.on_snapshot.append(follow)
    return watch


def _changed_keys(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return any(new.get(name) != key for name, key in old.items())
