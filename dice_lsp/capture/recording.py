"""The files that a recording of kernel launches consists of, and how they are read.

The library inside the program (`injection.c`) writes a log, and `finish` makes one file of the logs of a run. Both are
`DICECAP1` and then records: magic `DICE`, kind, length (little-endian, 4 + 4 + 8 bytes) and that many bytes.

    1 process  JSON: pid, program, the driver's CUDA version, what kept the library from recording
    2 chunk    BLAKE2b-128 of the plain bytes (16), codec (8: 0 plain, 1 zlib), number of plain bytes (8), the bytes
    3 kernel   JSON: number, mangled name, whether it was to be recorded
    4 launch   JSON: grid, block, parameters, allocations and the chunks of what they held before
    5 after    JSON: how the launch ended and the chunks of what the allocations held then; in a finished file a part of 4
    7 run      JSON: the command, the files and kernels; the first record of a finished file and found nowhere else

Memory is cut into chunks of 1 MiB that are written once however often they occur. A log may end within a record, since
programs are killed; what stands before that is whole. A recording may come from a stranger's workspace, so nothing in
it is trusted: lengths are checked, chunks are proved by their digest, and what does not hold is a `CaptureError`.
"""

import hashlib
import json
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from attrs import Factory, define, frozen

MAGIC = b"DICECAP1"
RECORD = struct.Struct("<4sIQ")
RECORD_MAGIC = b"DICE"
CHUNK = struct.Struct("<16sQQ")
PROCESS, CHUNK_KIND, KERNEL, LAUNCH, AFTER, TRACE, RUN = range(1, 8)
CHUNK_BYTES = 1 << 20
MAX_JSON_BYTES = 64 << 20
MAX_BUFFER_BYTES = 8 << 30
"""More than this is not made into one array."""
COUNT_HEAD, COUNT_WORDS, MAX_KERNELS = 8, 8, 1024
COUNTERS_BYTES = 8 * (COUNT_HEAD + COUNT_WORDS * MAX_KERNELS)
STATES = {0: "unknown", 1: "loaded", 2: "no_cupti", 3: "refused", 4: "ready"}


class CaptureError(Exception):
    """A recording cannot be made or read; the message is one sentence for the user."""


@frozen
class Stored:
    """Where a chunk lies in a file."""

    offset: int
    stored_bytes: int
    codec: int
    nbytes: int


@define
class Log:
    """All that a file says, without the contents of its chunks."""

    path: Path
    run: Mapping[str, Any] | None = None
    processes: list[Mapping[str, Any]] = Factory(list)
    kernels: dict[int, Mapping[str, Any]] = Factory(dict)
    launches: list[dict[str, Any]] = Factory(list)
    """In the order of the program; `after` is None where the program ended before the launch did."""
    chunks: dict[str, Stored] = Factory(dict)
    traces: list[Mapping[str, Any]] = Factory(list)
    whole: bool = True
    """False where the last record is cut short."""


@frozen
class Counts:
    """What became of the launches of one kernel, counted in memory that outlives the program."""

    seen: int = 0
    recorded: int = 0
    over_limit: int = 0
    in_graph: int = 0
    unfinished: int = 0
    failed: int = 0
    bare: int = 0
    """Recorded without the contents of memory."""


@frozen
class Counters:
    """The counters of one process."""

    errno: int
    """Why the log could not be written any further, 0 when it could."""
    graph_launches: int
    other_launches: int
    """Launches that cannot be read: on several devices at once, or by functions of CUDA 3."""
    state: str
    cupti_status: int
    kernels: tuple[Counts, ...]


def opened(path: Path) -> BinaryIO:
    """A plain file for reading; never a link, a pipe or a device, which a stranger's workspace may hold."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise CaptureError(f"{path} is not a plain file")
    return file


def read_log(path: Path) -> Log:
    """A log or a finished recording. Raises `CaptureError` where it is neither."""
    log = Log(path)
    by_number: dict[int, dict[str, Any]] = {}
    with opened(path) as file:
        for kind, offset, length in _records(file, log):
            if kind == CHUNK_KIND:
                head = file.read(CHUNK.size)
                if len(head) == CHUNK.size:
                    digest, codec, nbytes = CHUNK.unpack(head)
                    log.chunks.setdefault(digest.hex(), Stored(offset + CHUNK.size, length - CHUNK.size, codec, nbytes))
                continue
            data = _json(file, length)
            if data is None:
                log.whole = False
            elif kind == RUN and log.run is None:
                log.run = data
            elif kind == PROCESS:
                log.processes.append(data)
            elif kind == KERNEL and isinstance(data.get("kernel"), int):
                log.kernels[data["kernel"]] = data
            elif kind == LAUNCH:
                log.launches.append({"after": None, **data})
                if isinstance(data.get("launch"), int):
                    by_number[data["launch"]] = log.launches[-1]
            elif kind == AFTER and data.get("launch") in by_number:
                by_number[data["launch"]]["after"] = data
            elif kind == TRACE:
                log.traces.append(data)
    return log


def read_run(path: Path) -> Mapping[str, Any]:
    """What a finished recording says about its run, from its first record alone. Raises `CaptureError`."""
    log = Log(path)
    with opened(path) as file:
        for kind, _, length in _records(file, log):
            if kind == RUN and (data := _json(file, length)) is not None:
                return data
            break
    raise CaptureError(f"{path} is no finished recording")


def _records(file: BinaryIO, log: Log) -> Iterator[tuple[int, int, int]]:
    """Kind, offset and length of each whole record; the file stands at its first byte when it is given."""
    size = os.fstat(file.fileno()).st_size
    if file.read(len(MAGIC)) != MAGIC:
        raise CaptureError(f"{log.path} is no recording of kernel launches")
    at = len(MAGIC)
    while at < size:
        head = file.read(RECORD.size)
        if len(head) < RECORD.size:
            log.whole = False
            return
        magic, kind, length = RECORD.unpack(head)
        if magic != RECORD_MAGIC or length > size - at - RECORD.size:
            log.whole = False
            return
        yield kind, at + RECORD.size, length
        at += RECORD.size + length
        file.seek(at)


def _json(file: BinaryIO, length: int) -> dict[str, Any] | None:
    if length > MAX_JSON_BYTES:
        return None
    try:
        data = json.loads(file.read(length))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def chunk_bytes(file: BinaryIO, log: Log, digest: str) -> bytes:
    """The plain bytes of a chunk, proved by its digest. Raises `CaptureError`."""
    stored = log.chunks.get(digest)
    if stored is None or stored.nbytes > CHUNK_BYTES or stored.stored_bytes > 2 * CHUNK_BYTES:
        raise CaptureError(f"{log.path} is damaged: a part of it is missing")
    file.seek(stored.offset)
    data = file.read(stored.stored_bytes)
    if stored.codec == 1:
        try:
            # Bounded, so that a small file cannot fill the memory.
            data = zlib.decompressobj().decompress(data, CHUNK_BYTES + 1)
        except zlib.error as error:
            raise CaptureError(f"{log.path} is damaged: {error}") from error
    if len(data) != stored.nbytes or hashlib.blake2b(data, digest_size=16).hexdigest() != digest:
        raise CaptureError(f"{log.path} is damaged: a part of it does not hold what was written")
    return data


def read_counters(path: Path) -> Counters | None:
    """The counters beside a log; None when they cannot be read."""
    try:
        with opened(path) as file:
            data = file.read(COUNTERS_BYTES)
    except CaptureError:
        return None
    if len(data) < COUNTERS_BYTES:
        return None
    words = struct.unpack(f"<{COUNTERS_BYTES // 8}Q", data)
    head, rows = words[:COUNT_HEAD], words[COUNT_HEAD:]
    kernels = tuple(Counts(*rows[at : at + 7]) for at in range(0, min(head[1], MAX_KERNELS) * COUNT_WORDS, COUNT_WORDS))
    return Counters(head[0], head[2], head[3], STATES.get(head[4], "unknown"), head[5], kernels)


class Writer:
    """Writes a finished recording. Raises `OSError`."""

    def __init__(self, file: BinaryIO, run: Mapping[str, Any]) -> None:
        self._file = file
        self._written: set[str] = set()
        file.write(MAGIC)
        self._record(RUN, json.dumps(run).encode())

    def launch(self, launch: Mapping[str, Any], log: Log, source: BinaryIO) -> None:
        """Add a launch of a log with the chunks that it needs. Chunks are copied as they are."""
        for digest in digests_of(launch):
            stored = log.chunks.get(digest)
            if stored is None or digest in self._written:
                continue
            self._written.add(digest)
            source.seek(stored.offset - CHUNK.size)
            self._record(CHUNK_KIND, source.read(CHUNK.size + stored.stored_bytes))
        self._record(LAUNCH, json.dumps(launch).encode())

    def _record(self, kind: int, data: bytes) -> None:
        self._file.write(RECORD.pack(RECORD_MAGIC, kind, len(data)))
        self._file.write(data)


def digests_of(launch: Mapping[str, Any]) -> Iterator[str]:
    """The chunks that a launch names, before and after."""
    for part in (launch, launch.get("after") or {}):
        yield from _strings(part.get("contents"))
        yield from _strings(part.get("symbol_contents"))


def _strings(nested: Any) -> Iterator[str]:
    if isinstance(nested, str):
        yield nested
    elif isinstance(nested, list):
        for item in nested:
            yield from _strings(item)
