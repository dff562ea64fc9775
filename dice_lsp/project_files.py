"""The files of a project, for `source.project`: read with a cache, within bounds, and inside of the workspace only.

All of it reads the disk, so never on a loop. A file or a folder is looked at again when it was not for `FRESH_S`.
"""

import os
import re
import threading
import time
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path

from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.flag_finder import shared_finder
from dice_lsp.include_graph import includes_of
from dice_lsp.source.positions import decode_bytes
from dice_lsp.workspace import workspace_root

FRESH_S = 1.0
MAX_BYTES = 600_000
"""Of one file; see `source.preprocess.MAX_TEXT`."""
MAX_KEPT_BYTES = 64 << 20
MAX_FILES = 400
"""Files of the folders around one that are asked whom they include."""
MAX_LISTED = 2000
MAX_INCLUDERS = 8
SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
HEADERS = (".cuh", ".h", ".hpp", ".hxx", ".hh", ".inl", ".inc")
_SKIPPED = frozenset(
    {"build", "node_modules", "third_party", "third-party", "external", ".git", "__pycache__", ".venv"}
)


@frozen
class _Known:
    stamp: tuple[int, int] | None
    text: str | None
    includes: tuple[str, ...]
    """The last parts of the names of what it includes."""
    checked: float


class ProjectFiles:
    """The project below `root`; safe for several threads."""

    def __init__(self, root: str, include_dirs: tuple[str, ...] = (), macros: tuple[str, ...] = ()) -> None:
        self.defines = {
            name: value if equals else "1" for name, equals, value in (each.partition("=") for each in macros)
        }
        self.root = os.path.realpath(root)
        self._dirs = tuple(folder for folder in include_dirs if self._is_inside(folder))
        self._lock = threading.RLock()
        self._files: OrderedDict[str, _Known] = OrderedDict()
        self._folders: dict[str, tuple[float, int, tuple[str, ...], tuple[str, ...]]] = {}
        self._kept_bytes = 0
        self._generation = 0

    @property
    def generation(self) -> int:
        with self._lock:
            now = time.monotonic()
            for path in [path for path, known in self._files.items() if now - known.checked > FRESH_S]:
                self._read(path)
            for folder in [folder for folder, known in self._folders.items() if now - known[0] > FRESH_S]:
                self._list(folder)
            return self._generation

    def text(self, path: str) -> str | None:
        with self._lock:
            return self._read(path).text

    def resolve(self, path: str, name: str, quoted: bool) -> str | None:
        here = os.path.dirname(path)
        for folder in ((here,) if quoted else ()) + self._dirs:
            candidate = os.path.normpath(os.path.join(folder, name))
            if self.text(candidate) is not None:
                return candidate
        return None

    def includers(self, path: str) -> tuple[str, ...]:
        with self._lock:
            around = self._around(path)
            by_name: dict[str, list[str]] = {}
            for file in around:
                for name in self._read(file).includes:
                    by_name.setdefault(name, []).append(file)
            found: list[str] = []
            seen = {path}
            waiting = [path]
            while waiting and len(seen) < MAX_FILES:
                header = waiting.pop(0)
                for file in by_name.get(os.path.basename(header), ()):
                    if file in seen or not self._includes(file, header):
                        continue
                    seen.add(file)
                    waiting.append(file)
                    if file.endswith(SOURCES) and len(found) < MAX_INCLUDERS:
                        found.append(file)
            return tuple(found)

    def siblings(self, path: str) -> tuple[str, ...]:
        with self._lock:
            files, _ = self._list(os.path.dirname(path))
            return tuple(file for file in files if file != path and file.endswith(SOURCES))[:64]

    def _includes(self, file: str, header: str) -> bool:
        text = self._read(file).text or ""
        return any(self.resolve(file, name, quoted) == header for quoted, name in includes_of(text))

    def _around(self, path: str) -> list[str]:
        """The files of the folder, of its parents within the project, and of what lies next to it, nearest first."""
        here = os.path.dirname(path)
        folders = [here]
        above = os.path.dirname(here)
        if self._is_inside(above):
            folders.append(above)
            folders += self._list(above)[1]
        folders += self._list(here)[1]
        found: list[str] = []
        for folder in dict.fromkeys(folders):
            found += [file for file in self._list(folder)[0] if file not in found]
            if len(found) >= MAX_FILES:
                break
        return found[:MAX_FILES]

    def _is_inside(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real == self.root or real.startswith(self.root.rstrip(os.sep) + os.sep)

    def _list(self, folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files of a folder that may matter, and its subfolders."""
        now = time.monotonic()
        known = self._folders.get(folder)
        if known is not None and now - known[0] <= FRESH_S:
            return known[2], known[3]
        try:
            stamp = os.stat(folder).st_mtime_ns
            if known is not None and known[1] == stamp:
                self._folders[folder] = (now, stamp, known[2], known[3])
                return known[2], known[3]
            entries = sorted(entry.name for entry in os.scandir(folder))[:MAX_LISTED] if self._is_inside(folder) else []
        except OSError:
            stamp, entries = 0, []
        files = tuple(os.path.join(folder, name) for name in entries if name.endswith((*SOURCES, *HEADERS)))
        inner = tuple(
            os.path.join(folder, name)
            for name in entries
            if name not in _SKIPPED and not name.startswith(".") and os.path.isdir(os.path.join(folder, name))
        )
        if known is not None and (known[2], known[3]) != (files, inner):
            self._generation += 1
        self._folders[folder] = (now, stamp, files, inner)
        return files, inner

    def _read(self, path: str) -> _Known:
        now = time.monotonic()
        known = self._files.get(path)
        if known is not None and now - known.checked <= FRESH_S:
            self._files.move_to_end(path)
            return known
        stamp: tuple[int, int] | None = None
        text: str | None = None
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_size)
            if known is not None and known.stamp == stamp:
                text = known.text
            elif status.st_size <= MAX_BYTES and os.path.isfile(path) and self._is_inside(path):
                with open(path, "rb") as file:
                    text = decode_bytes(file.read(MAX_BYTES + 1))
        except OSError:
            stamp = None
        if known is not None and known.stamp != stamp:
            self._generation += 1
        same = known is not None and known.stamp == stamp
        names = known.includes if known is not None and same else _names_of(text)
        found = _Known(stamp, text, names, now)
        self._keep(path, found)
        return found

    def _keep(self, path: str, known: _Known) -> None:
        old = self._files.pop(path, None)
        self._kept_bytes += len(known.text or "") - (len(old.text or "") if old is not None else 0)
        self._files[path] = known
        while self._kept_bytes > MAX_KEPT_BYTES and len(self._files) > 1:
            _, dropped = self._files.popitem(last=False)
            self._kept_bytes -= len(dropped.text or "")


def _names_of(text: str | None) -> tuple[str, ...]:
    return tuple({re.split(r"[\\/]", name)[-1] for _, name in includes_of(text)}) if text else ()


@lru_cache(maxsize=32)
def _project(root: str, include_dirs: tuple[str, ...], macros: tuple[str, ...]) -> ProjectFiles:
    return ProjectFiles(root, include_dirs, macros)


def project_of(path: str, include_dirs: tuple[str, ...] = (), macros: tuple[str, ...] = ()) -> ProjectFiles:
    """The project that the file at `path` belongs to; the same object for the same project and flags.

    `macros` are those of the build, `NAME` or `NAME=VALUE`.
    """
    root = workspace_root(Path(os.path.abspath(path)).parent)
    return _project(str(root), tuple(include_dirs), tuple(macros))


def project_at(path: str, settings: Settings) -> ProjectFiles | None:
    """The project of a file of host code, with the include folders that its build names; None for a Python file."""
    if path.endswith((".py", ".ipynb")) or not os.path.isdir(os.path.dirname(path)):
        return None
    flags = shared_finder().find(path, settings).flags
    macros = (flag[2:] for flag in flags.flags if flag.startswith("-D"))
    return project_of(path, flags.project_dirs, tuple(each for each in macros if "(" not in each.partition("=")[0]))
