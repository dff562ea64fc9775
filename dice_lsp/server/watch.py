"""Headers and build files that change outside the editor: the kernels that they concern are stale and checked again.

Build files are the compilation databases, `.clangd`, presets and the like that decide a file's flags. Folders are watched,
not files, because editors and version control replace files. What counts is what a compiler would be given: a file that
was only touched changes nothing.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping

from attrs import frozen
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from dice_lsp.flag_finder import FoundFlags, shared_finder
from dice_lsp.include_graph import HeaderSet
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.on_save import start_check
from dice_lsp.server.session import DiceServer
from dice_lsp.source.compile_commands import BUILD_FOLDER

POLL_S = 3.0
log = logging.getLogger(__name__)
SETTLE_S = 0.2
"""A header that is being written changes several times; it is read once it has been quiet for this long."""


@frozen
class _Followed:
    """What decides about one document outside of its text."""

    headers: HeaderSet
    flags: FoundFlags

    @property
    def files(self) -> frozenset[str]:
        return self.headers.paths | self.headers.missing | self.flags.read | self.flags.missing

    @property
    def folders(self) -> frozenset[str]:
        return self.headers.folders | self.flags.folders


class HeaderWatch(FileSystemEventHandler):
    """Watches the folders of the headers that open documents include, and of the files that decide their flags."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observer: BaseObserver | None = None
        self._watches: dict[str, ObservedWatch] = {}
        self._followed: dict[str, _Followed] = {}
        self._folders: frozenset[str] = frozenset()
        self._interesting: frozenset[str] = frozenset()
        self._levels: frozenset[str] = frozenset()
        """Folders in which a build folder may come."""
        self._changed: set[str] = set()
        self._waiting: asyncio.TimerHandle | None = None

    def follow(self, snapshot: Snapshot) -> None:
        """Watch what decides about one document. Called on the loop."""
        uri, followed = snapshot.document.uri, _Followed(snapshot.headers, snapshot.flags)
        if self._followed.get(uri) != followed:
            self._followed[uri] = followed
            self._follow()

    def forget(self, uri: str) -> None:
        """The document was closed. Called on the loop."""
        if self._followed.pop(uri, None) is not None:
            self._follow()

    def _follow(self) -> None:
        self._interesting = frozenset().union(*(each.files for each in self._followed.values()))
        self._levels = frozenset().union(*(each.flags.levels for each in self._followed.values()))
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
        if event.event_type in ("opened", "closed_no_write"):
            return
        paths = {os.path.normpath(os.fsdecode(path)) for path in (event.src_path, event.dest_path) if path}
        if event.is_directory:
            paths = set() if event.event_type == "modified" else set(filter(self._is_build_folder, paths))
        else:
            paths &= self._interesting
        if paths and self._loop is not None:
            self._loop.call_soon_threadsafe(self._note, paths)

    def _is_build_folder(self, path: str) -> bool:
        folder, name = os.path.split(path)
        return folder in self._levels and BUILD_FOLDER.fullmatch(name) is not None

    def _rewatch(self, folders: frozenset[str]) -> None:
        """Bring the observer in line with what is followed. On the reading thread: it looks at the disk."""
        wanted = {folder for folder in folders if os.path.isdir(folder)}
        for folder in set(self._watches) - wanted:
            assert self._observer is not None
            watch = self._watches.pop(folder)
            with contextlib.suppress(KeyError):  # of a folder that went away the observer knows nothing any more
                self._observer.unschedule(watch)
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
        shared_finder().forget()
        for uri, followed in self._followed.items():
            if changed & followed.files or any(os.path.dirname(path) in followed.flags.levels for path in changed):
                self._server.documents.read_again(uri)


def _started(observer: BaseObserver) -> BaseObserver:
    observer.daemon = True
    observer.start()
    return observer


def register(server: DiceServer) -> HeaderWatch:
    watch = HeaderWatch(server)

    def follow(old: Snapshot | None, new: Snapshot) -> None:
        uri = new.document.uri
        watch.follow(new)
        server.complain((*new.flags.notes, *new.flags.flags.complaints))
        if old is None or not server.settings_of(uri).check_on_save:
            return
        if (old.headers.digest, old.flags.digest) != (new.headers.digest, new.flags.digest):
            if _changed_keys(old.keys, new.keys):
                server.refresh()
                server.spawn(start_check(server, uri), "check after a header or the flags changed")

    server.on_snapshot.append(follow)
    return watch


def _changed_keys(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return any(new.get(name) != key for name, key in old.items())
