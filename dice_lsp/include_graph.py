"""The headers that a text includes from its own project, one digest of what they hold, and who includes a header.

A kernel's evidence depends on headers as much as on its own text. System headers, written with `<...>`, are found in the
given include folders only; those of a toolkit are part of the evidence's toolkit already.
"""

import hashlib
import os
import re
from collections.abc import Iterable

from attrs import frozen

from dice_lsp.source.positions import decode_bytes

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\r\n]+)"|<([^>\r\n]+)>)', re.MULTILINE)
MAX_HEADERS = 256
MAX_HEADER_BYTES = 4 << 20
MAX_LOOKS = 20_000
"""How many includes are followed while a header's includer is looked for."""


@frozen
class HeaderSet:
    """The headers found, those that were looked for in vain, and the folders of both. All paths are absolute."""

    paths: frozenset[str]
    missing: frozenset[str]
    folders: frozenset[str]
    digest: str
    """Changes exactly when a header's content does, or one comes or goes."""


@frozen
class _Read:
    stamp: tuple[int, int]
    digest: str
    includes: tuple[tuple[bool, str], ...]


class Headers:
    """Follows includes through files, each read again only when its size or time has changed."""

    def __init__(self) -> None:
        self._known: dict[str, _Read] = {}

    def of(self, text: str, path: str, include_dirs: tuple[str, ...]) -> HeaderSet:
        """The headers of a text that lies at `path`. Reads files, so never on the loop."""
        found: dict[str, str] = {}
        missing: set[str] = set()
        folders: set[str] = set()
        waiting = [(path, includes_of(text))]
        while waiting and len(found) < MAX_HEADERS:
            includer, includes = waiting.pop()
            here = os.path.dirname(os.path.abspath(includer))
            for quoted, name in includes:
                if quoted:
                    folders.add(here)
                for folder in ((here,) if quoted else ()) + include_dirs:
                    candidate = os.path.normpath(os.path.join(folder, name))
                    read = found.get(candidate) is None and self._read(candidate)
                    if read:
                        found[candidate] = read.digest
                        folders.add(os.path.dirname(candidate))
                        waiting.append((candidate, read.includes))
                    if candidate in found:
                        break
                    if quoted:
                        missing.add(candidate)
        parts = "".join(f"{name}\0{digest}\0" for name, digest in sorted(found.items()))
        digest = hashlib.sha256(parts.encode()).hexdigest()
        return HeaderSet(frozenset(found), frozenset(missing), frozenset(folders), digest)

    def unplaced(self, path: str, include_dirs: tuple[str, ...]) -> tuple[str, ...]:
        """The names of quoted includes, a file's own and of headers behind them, that lead nowhere. Reads files."""
        missing: dict[str, None] = {}
        seen = {path}
        waiting = [path]
        while waiting and len(seen) < MAX_HEADERS:
            file = waiting.pop()
            read = self._read(file)
            for quoted, name in () if read is None else read.includes:
                for folder in ((os.path.dirname(file),) if quoted else ()) + include_dirs:
                    candidate = os.path.normpath(os.path.join(folder, name))
                    if candidate in seen:
                        break
                    if self._read(candidate) is not None:
                        seen.add(candidate)
                        waiting.append(candidate)
                        break
                else:
                    if quoted:
                        missing[name] = None
        return tuple(missing)

    def includer(self, header: str, candidates: Iterable[tuple[str, tuple[str, ...]]]) -> str | None:
        """The first of `(file, its include folders)` that includes a header, itself or through others.

        Reads files, so never on the loop. None also once `MAX_LOOKS` includes have been followed.
        """
        name = os.path.basename(header)
        looks = 0
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for file, include_dirs in candidates:
            waiting = [file]
            while waiting:
                path = waiting.pop()
                # What was seen with the same folders does not lead there, or the search had ended.
                if (path, include_dirs) in seen or path == header:
                    continue
                seen.add((path, include_dirs))
                read = self._read(path)
                for quoted, written in () if read is None else read.includes:
                    looks += 1
                    if looks > MAX_LOOKS:
                        return None
                    for folder in ((os.path.dirname(path),) if quoted else ()) + include_dirs:
                        candidate = os.path.normpath(os.path.join(folder, written))
                        if candidate == header or (
                            os.path.basename(candidate) == name
                            and os.path.realpath(candidate) == os.path.realpath(header)
                        ):
                            return file
                        if (candidate, include_dirs) in seen or self._read(candidate) is not None:
                            waiting.append(candidate)
                            break
        return None

    def _read(self, path: str) -> _Read | None:
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._known.get(path)
            if known is not None and known.stamp == stamp:
                return known
            if not os.path.isfile(path) or status.st_size > MAX_HEADER_BYTES:
                return None
            with open(path, "rb") as file:
                data = file.read()
        except (OSError, ValueError):
            self._known.pop(path, None)
            return None
        read = _Read(stamp, hashlib.sha256(data).hexdigest(), includes_of(decode_bytes(data)))
        self._known[path] = read
        return read


def includes_of(text: str) -> tuple[tuple[bool, str], ...]:
    """`(quoted, name)` of every include of a text."""
    return tuple((match[1] is not None, match[1] or match[2]) for match in _INCLUDE.finditer(text))
