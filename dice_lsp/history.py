"""Every measurement of a workspace and its baselines, in one SQLite file that several processes may share.

The store is a convenience: whatever is wrong with the disk, a check goes on without it, and `problem` says what is
missing in one sentence. A file that cannot be read is moved aside and never deleted, one of a newer version is left
alone. A workspace may come from anywhere, so nothing in it decides where we write, and nothing read back is trusted.
"""

import errno
import fcntl
import json
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import attrs

from dice_lsp.baseline import BaselineError, decode, encode, launch_key, read_back
from dice_lsp.records import (
    Ambiguous,
    Baseline,
    Compiled,
    Faster,
    KernelReport,
    Measurement,
    Same,
    Slower,
    Timing,
    Unverified,
    kind_of,
)
from dice_lsp.wording import BEING_CHECKED

log = logging.getLogger(__name__)
T = TypeVar("T")

FILE = "history.sqlite"
VERSION = 1
KEPT_PER_KERNEL = 500
BUSY_S = 10.0
"""How long one process waits for another that writes."""
_APPLICATION_ID = 0x44494345
"""`DICE`: tells our file from any other SQLite file of that name."""

_FIELDS = tuple(field.name for field in attrs.fields(Measurement))
_COLUMNS = ", ".join(f'"{name}"' for name in _FIELDS)
_MIGRATIONS = (
    """
    CREATE TABLE measurement (
        id INTEGER PRIMARY KEY, file TEXT NOT NULL, kernel TEXT NOT NULL,
        "when", "key", slice_key, device, driver, toolkit, arch, launch_key, registers, spill_bytes, smem_bytes, occupancy,
        verdict, median_us, q1_us, q3_us, cold, "case", comparison, ratio
    );
    CREATE INDEX measurement_of_kernel ON measurement (file, kernel, id);
    CREATE TABLE baseline (
        file TEXT NOT NULL, kernel TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (file, kernel)
    )
    """,
)
"""What brings a file from the version of its place to the next one. Never changed, only added to."""
assert len(_MIGRATIONS) == VERSION


class _Newer(Exception):
    """The file belongs to a newer version; the argument is that version."""


class _Broken(Exception):
    """The file is not one of ours, or damaged."""


class _Refused(Exception):
    """The place is not used; the argument is the reason, one sentence."""


class History:
    """The measurements and baselines of one workspace. Safe to call from any thread; every call blocks."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._closed = False
        self._lasting_problem: str | None = None
        self._passing_problem: str | None = None
        self._identity: tuple[int, int] | None = None
        self._database = self._open()

    @classmethod
    def open(cls, folder: Path | None) -> "History":
        """Open the store in `folder`, the workspace's `.dice`; in memory when there is none or it cannot be used."""
        return cls(folder)

    @property
    def problem(self) -> str | None:
        """One sentence when measurements are not kept, or when the last call could not do its work."""
        return self._passing_problem or self._lasting_problem

    def put(self, file: str, kernel: str, measurement: Measurement) -> bool:
        """Add a measurement; the oldest of the kernel beyond 500 go. False if it was not kept, see `problem`."""
        values = [_plain(value) for value in attrs.astuple(measurement)]
        key = (_plain(file), _plain(kernel))
        marks = ", ".join("?" * (2 + len(values)))

        def insert(database: sqlite3.Connection) -> bool:
            with _transaction(database):
                database.execute(
                    f"INSERT INTO measurement (file, kernel, {_COLUMNS}) VALUES ({marks})", (*key, *values)
                )
                database.execute(
                    "DELETE FROM measurement WHERE file = ? AND kernel = ? AND id NOT IN"
                    " (SELECT id FROM measurement WHERE file = ? AND kernel = ? ORDER BY id DESC LIMIT ?)",
                    (*key, *key, KEPT_PER_KERNEL),
                )
            return True

        return self._do("a measurement was not kept", insert) or False

    def last(self, file: str, kernel: str, device: str | None = None, limit: int = 30) -> tuple[Measurement, ...]:
        """The newest measurements of a kernel, oldest first; only those of one device if it is given."""
        key = (_plain(file), _plain(kernel))
        filtered = "" if device is None else " AND device = ?"
        arguments = (*key, *(() if device is None else (_plain(device),)), limit)

        def select(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return database.execute(
                f"SELECT {_COLUMNS} FROM measurement WHERE file = ? AND kernel = ?{filtered} ORDER BY id DESC LIMIT ?",
                arguments,
            ).fetchall()

        found = []
        for row in reversed(self._do("the history was not read", select) or []):
            measurement = read_back(_row(row), Measurement)
            if measurement is None:
                log.warning("a measurement of %s in %s is left out: it cannot be read", kernel, file)
            else:
                found.append(measurement)
        return tuple(found)

    def accept(self, file: str, kernel: str, baseline: Baseline) -> bool:
        """Make `baseline` the kernel's. False if it was not kept, see `problem`."""
        record = json.dumps(encode(baseline), allow_nan=False)

        def replace(database: sqlite3.Connection) -> bool:
            with _transaction(database):
                database.execute(
                    "INSERT OR REPLACE INTO baseline (file, kernel, record) VALUES (?, ?, ?)",
                    (_plain(file), _plain(kernel), record),
                )
            return True

        return self._do("the baseline was not kept", replace) or False

    def baseline(self, file: str, kernel: str) -> Baseline | None:
        """The kernel's baseline, if there is one that can be read."""
        return self._baselines(file, "AND kernel = ?", (_plain(kernel),)).get(_plain(kernel))

    def baselines(self, file: str) -> dict[str, Baseline]:
        """The baselines of a file, by kernel."""
        return self._baselines(file, "", ())

    def forget_baseline(self, file: str, kernel: str) -> bool:
        """Remove the kernel's baseline. False if there was none, or if it could not be removed, see `problem`."""

        def delete(database: sqlite3.Connection) -> bool:
            with _transaction(database):
                cursor = database.execute(
                    "DELETE FROM baseline WHERE file = ? AND kernel = ?", (_plain(file), _plain(kernel))
                )
                return cursor.rowcount > 0

        return self._do("the baseline was not removed", delete) or False

    def close(self) -> None:
        """Close the file. Calls that come later do nothing and say so."""
        with self._lock, suppress(sqlite3.Error):
            self._closed = True
            self._database.close()

    def _baselines(self, file: str, condition: str, arguments: tuple[str, ...]) -> dict[str, Baseline]:
        def select(database: sqlite3.Connection) -> list[tuple[Any, Any]]:
            return database.execute(
                f"SELECT kernel, record FROM baseline WHERE file = ? {condition}", (_plain(file), *arguments)
            ).fetchall()

        found = {}
        for kernel, record in self._do("the baselines were not read", select) or []:
            try:
                found[kernel] = decode(json.loads(record))
            except (BaselineError, ValueError, TypeError, RecursionError) as error:
                log.warning("the baseline of %s in %s is left out: %s", kernel, file, error)
        return found

    def _do(self, failure: str, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `work` on the store. What the disk does to it is told by `problem`, never raised."""
        with self._lock:
            if self._closed:
                self._passing_problem = f"{failure}: the history is closed"
                return None
            try:
                try:
                    self._follow()
                    done = work(self._database)
                except sqlite3.DatabaseError as error:
                    if not _is_broken(error):
                        raise
                    # The file was damaged while it was open: what can be saved is aside, and the work begins anew.
                    log.warning("the history is damaged: %s", error)
                    self._database.close()
                    self._database = self._open(known_broken=True)
                    done = work(self._database)
                self._passing_problem = None
                return done
            except (sqlite3.Error, OSError) as error:
                if _is_ours(error):
                    raise
                self._passing_problem = f"{failure}: {_words(error)}"
                log.warning("%s", self._passing_problem)
                return None

    def _follow(self) -> None:
        """Open anew what has changed under us.

        A user may remove `.dice` while we run; another process may move a broken file aside, or bring it to a newer version.
        """
        if self._identity is None:
            return
        if _identity(self._path) == self._identity and _version(self._database) == VERSION:
            return
        with suppress(sqlite3.Error):
            self._database.close()
        self._database = self._open()

    # Opening

    @property
    def _path(self) -> Path:
        assert self._folder is not None
        return self._folder / FILE

    def _open(self, known_broken: bool = False) -> sqlite3.Connection:
        self._identity, self._lasting_problem = None, None
        try:
            if self._folder is None:
                raise _Refused("no folder is open, so measurements are kept only until the server ends: open a folder")
            _prepare(self._folder)
            database = self._open_file(known_broken)
            self._identity = _identity(self._path)
            return database
        except _Refused as refusal:
            self._lasting_problem = str(refusal)
        except _Newer as newer:
            self._lasting_problem = (
                f"{self._path} was written by a newer dice-lsp (version {newer}, this one reads {VERSION}), so it is left"
                " alone and measurements are kept only until the server ends: update dice-lsp"
            )
        except (_Broken, sqlite3.Error, OSError) as error:
            if _is_ours(error):
                raise
            self._lasting_problem = (
                f"{self._path} cannot be written ({_words(error)}), so measurements are kept only until the server ends:"
                " make the folder writable or set dice.history to false"
            )
        if self._folder is not None:
            log.warning("%s", self._lasting_problem)
        database = _connect(":memory:")
        _migrate(database)
        return database

    def _open_file(self, known_broken: bool) -> sqlite3.Connection:
        if not known_broken:
            try:
                return _open_checked(self._path)
            except _Broken as reason:
                log.warning("%s is damaged: %s", self._path, reason)
        with _exclusive(self._path.with_name("history.lock")):
            # Another process may have seen the same and put a good file in its place while we waited.
            try:
                return _open_checked(self._path)
            except _Broken:
                _move_aside(self._path)
            return _open_checked(self._path)


def measurement_of(report: KernelReport) -> Measurement | None:
    """What the history keeps of a report; None while it is being checked, and when nothing was compiled."""
    build, verdict, timing, comparison = report.build, report.verdict, report.timing, report.comparison
    if not isinstance(build, Compiled) or not report.evidence.key:
        return None
    if isinstance(verdict, Unverified) and verdict.reason == BEING_CHECKED:
        return None
    timed = timing if isinstance(timing, Timing) else None
    compared = isinstance(comparison, (Faster, Slower, Same, Ambiguous))
    evidence = report.evidence
    return Measurement(
        when=evidence.when,
        key=evidence.key,
        slice_key=evidence.slice_key,
        device=evidence.device,
        driver=evidence.driver,
        toolkit=evidence.toolkit,
        arch=build.arch,
        launch_key=launch_key(report.spec),
        registers=build.registers,
        spill_bytes=build.spill_store_bytes + build.spill_load_bytes,
        smem_bytes=build.smem_bytes,
        occupancy=build.occupancy,
        verdict=kind_of(type(verdict)),
        median_us=timed.median_us if timed else None,
        q1_us=timed.q1_us if timed else None,
        q3_us=timed.q3_us if timed else None,
        cold=timed.cold if timed else None,
        case=timed.case if timed else "",
        comparison=kind_of(type(comparison)),
        ratio=getattr(comparison, "ratio", None) if compared else None,
    )


def _prepare(folder: Path) -> None:
    """Make the folder, and refuse one that would have us write somewhere else than in the workspace."""
    workspace = folder.parent.resolve()
    if not folder.resolve().is_relative_to(workspace):
        raise _Refused(
            f"{folder} leads out of the workspace, so nothing is written there and measurements are kept only until the"
            " server ends: replace the link with a folder"
        )
    folder.mkdir(exist_ok=True)
    for path in (folder / FILE, *(folder / f"{FILE}{suffix}" for suffix in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise _Refused(
                    f"{path} is not a plain file, so it is left alone and measurements are kept only until the server"
                    " ends: remove it"
                )
    for path in (folder, folder / FILE):
        # SQLite may open what it cannot write, and would fail at the first measurement only.
        if path.exists() and not os.access(path, os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with suppress(FileExistsError):
        # Exclusive, so that a link of this name is never followed.
        descriptor = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write("*\n")


def _open_checked(path: Path) -> sqlite3.Connection:
    """The store of a file, new if there is none. Raises `_Broken` or `_Newer`."""
    database = _connect(path)
    try:
        try:
            owner = database.execute("PRAGMA application_id").fetchone()[0]
            empty = not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if owner != _APPLICATION_ID and not (empty and owner == 0):
                raise _Broken("it is not a history of dice-lsp")
            if (found := _version(database)) > VERSION:
                raise _Newer(found)
            if (words := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise _Broken(words)
            _use_wal(database)
            _migrate(database)
            if _schema(database) != _our_schema():
                # Also a trigger or a view that a stranger put into the file of a workspace.
                raise _Broken("its tables are not those of this version")
        except sqlite3.DatabaseError as error:
            if _is_broken(error):
                raise _Broken(str(error)) from error
            raise
    except BaseException:
        database.close()
        raise
    return database


def _connect(path: Path | str) -> sqlite3.Connection:
    # Our own lock keeps the threads apart; transactions are begun by hand, so that a read never turns into a write.
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    # What a file declares about itself is a stranger's word: none of it may call a function.
    database.execute("PRAGMA trusted_schema = OFF")
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    return database


def _use_wal(database: sqlite3.Connection) -> None:
    """Readers and a writer at once. Where the file system cannot do it the file works as it is, only with more waiting."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            return
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait for others as everything else does.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _migrate(database: sqlite3.Connection) -> None:
    """Bring the schema to this version, in one transaction, so that two processes never do it both."""
    with _transaction(database):
        if (found := _version(database)) > VERSION:
            raise _Newer(found)
        for script in _MIGRATIONS[found:]:
            for statement in script.split(";"):
                database.execute(statement)
        if found < VERSION:
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {VERSION}")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _schema(database: sqlite3.Connection) -> set[tuple[str, str, str | None]]:
    return set(database.execute("SELECT type, name, sql FROM sqlite_schema"))


@cache
def _our_schema() -> set[tuple[str, str, str | None]]:
    with closing(_connect(":memory:")) as database:
        _migrate(database)
        return _schema(database)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # A full disk may have ended the transaction already.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """One process at a time; the file stays, because removing it would let two in."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with closing(os.fdopen(descriptor, "w")) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _move_aside(path: Path) -> None:
    """Rename the file and what SQLite keeps beside it; a name that is taken gets a number."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name, number = f"{path.name}.broken-{now}", 1
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.broken-{now}-{number}"
    for suffix in ("-wal", "-shm", "-journal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(path.with_name(name + suffix))
    log.warning("the damaged history was moved to %s", path.with_name(name))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _is_ours(error: Exception) -> bool:
    """Whether the error is a mistake of this file, e.g. in its SQL, and not the disk's or the user's."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR
    return False


def _words(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def _plain(value: Any) -> Any:
    """Names of files may hold what is not text; SQLite takes only text."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _row(row: tuple[Any, ...]) -> Mapping[str, Any]:
    """A row as the record's fields: SQLite has no booleans, and returns what it was given otherwise."""
    data = dict(zip(_FIELDS, row, strict=True))
    if data["cold"] in (0, 1):
        data["cold"] = bool(data["cold"])
    return data
