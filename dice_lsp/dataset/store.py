"""The user's own file of records, which several editors may add to at once.

It is only ever written under a lock file beside it. An addition is one write at the end; what a machine that failed left
half written there is taken away by the next one. Everything else replaces the file as a whole.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from attrs import frozen
from platformdirs import user_data_path

from dice_lsp.dataset.again import Outcome
from dice_lsp.dataset.cuke import CukeError, CukeRecord, dumped, from_line, read_records, to_line

FILE = "cuke.jsonl"
DROPPED = ".dropped.jsonl"
MAX_STORE_BYTES = 1 << 30


def dataset_file() -> Path:
    """Where the user's records are kept."""
    return user_data_path("dice-lsp") / "dataset" / FILE


def dropped_file(path: Path) -> Path:
    """Where what no longer holds of a file goes."""
    return path.with_name(path.name.removesuffix(".jsonl") + DROPPED)


@frozen
class Added:
    """What became of an addition: how many were new, and how many there are now."""

    new: int
    known: int
    total: int


def add(records: Iterable[CukeRecord], path: Path | None = None) -> Added:
    """Add records to a file, by default the user's, each whose device code is not there yet. Raises `CukeError`."""
    path = dataset_file() if path is None else path
    with _locked(path):
        there = _identities(path)
        new: list[CukeRecord] = []
        known = 0
        for record in records:
            if record.identity in there:
                known += 1
                continue
            there.add(record.identity)
            new.append(record)
        if new:
            _append(path, dumped(new))
    return Added(len(new), known, len(there))


def settle(path: Path, outcomes: Mapping[CukeRecord, Outcome]) -> None:
    """Put what a judgement left of each record in its place; what no longer holds goes into `dropped_file`, with the reason.

    The file is read again under the lock, and what was added to it since stays as it is. Raises `CukeError`.
    """
    _settle(path, outcomes.get)


def refute(evidence_key: str, reason: str, path: Path | None = None) -> None:
    """Take away the records of a file, by default the user's, whose evidence a later check has refuted. Raises `CukeError`."""
    path = dataset_file() if path is None else path

    def look(record: CukeRecord) -> Outcome | None:
        refuted = record.evidence is not None and record.evidence.key == evidence_key
        return Outcome(record, dropped=reason) if refuted else None

    if path.exists():
        _settle(path, look)


def _settle(path: Path, look: Callable[[CukeRecord], Outcome | None]) -> None:
    with _locked(path):
        there = _readable(path)
        found = [look(record) for record in there]
        gone = [each for each in found if each is not None and each.dropped]
        if not any(found):
            return
        # First there, then away: what a failure leaves is rather twice than nowhere.
        if gone:
            lines = (json.dumps({"dropped": each.dropped, **json.loads(to_line(each.record))}) + "\n" for each in gone)
            _append(dropped_file(path), "".join(lines).encode("ascii"))
        kept = (
            record if outcome is None else outcome.record
            for record, outcome in zip(there, found, strict=True)
            if outcome is None or not outcome.dropped
        )  # fmt: skip
        _write(path, dumped(kept))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock file stays, because removing it would let two in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(
            path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        os.close(lock)


def _identities(path: Path) -> set[str]:
    return {record.identity for record in _readable(path)}


def _readable(path: Path) -> tuple[CukeRecord, ...]:
    """The records of a file that may not be there yet, without a last line that was cut off."""
    if not path.exists():
        return ()
    if path.stat().st_size > MAX_STORE_BYTES:
        raise CukeError(f"{path} is over {MAX_STORE_BYTES >> 20} MiB: export what you need of it and remove it")
    _mend(path)
    return read_records(path)


def _mend(path: Path) -> None:
    """Give a last line without an end its end, or take it away if it was cut off."""
    with path.open("r+b") as file:
        data = file.read()
        if not data or data.endswith(b"\n"):
            return
        start = data.rfind(b"\n") + 1
        try:
            from_line(data[start:].decode("utf-8"))
        except (CukeError, UnicodeDecodeError):
            file.truncate(start)
        else:
            file.write(b"\n")


def _append(path: Path, lines: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        written = 0
        while written < len(lines):
            written += file.write(lines[written:])
        os.fsync(file.fileno())


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


def _unwritable(path: Path, error: OSError) -> CukeError:
    return CukeError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}; make its folder writable")
