"""Who may use a GPU now: one lock file per card, for our model, our runner and everybody else on this machine.

The lock is the operating system's (`flock`), so it ends with its holder however that ends. A second lock, the turn, is
held by whoever waits for the first: a holder that sees it taken knows that it is wanted (`give_way`), and one that lets
go and asks again stands behind those who waited. So a timing waits for one step of a model, never for a whole fill.

The files lie in a folder that all users share, because a card is shared by users too. Nobody there is trusted: files
are opened inside the opened folder, never through links, and only if they are what this module makes. What another
user can still do is to hold the lock, which every wait bounds, or to remove a file of a folder that he made himself.
"""

import contextlib
import errno
import fcntl
import logging
import os
import pwd
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator

from attrs import frozen

log = logging.getLogger(__name__)

SHARED = "/tmp/dice-lsp-leases"
VARIABLE = "DICE_LSP_LEASES"
"""Environment variable that names another folder for the lock files."""
_SLEEPS_S = (0.0005, 0.005)
_TOLD_AFTER_S = 0.3
_TRIES = 40


class InUse(Exception):
    """Somebody else uses the card; the message is one sentence with who and what to do."""


@frozen
class Holder:
    """Who holds a card, as it says itself."""

    pid: int
    user: str
    purpose: str

    def __str__(self) -> str:
        whose = "" if self.user in ("", _user()) else f" of {self.user}"
        return f"process {self.pid}{whose} (dice-lsp, {self.purpose})"


class Lease:
    """One card's lock. Not for use from several threads, and not to be acquired twice.

    Where no folder for locks can be had the lease is always granted: then nobody else can be seen either.
    """

    def __init__(self, uuid: str, folder: str | None = None) -> None:
        """`uuid` is the card's, in any of its spellings."""
        self.name = f"gpu-{re.sub(r'[^0-9a-z-]', '', re.sub(r'^(gpu|mig)-', '', uuid.lower()))[:64]}"
        self._folder = folder
        self._lock: int | None = None

    @property
    def held(self) -> bool:
        return self._lock is not None

    @contextlib.contextmanager
    def hold(
        self,
        purpose: str,
        *,
        wait_s: float,
        check: Callable[[], None] | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Iterator["Lease"]:
        """Hold the card within the block; see `acquire`."""
        self.acquire(purpose, wait_s=wait_s, check=check, on_wait=on_wait)
        try:
            yield self
        finally:
            self.release()

    def acquire(
        self,
        purpose: str,
        *,
        wait_s: float,
        check: Callable[[], None] | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Wait up to `wait_s` seconds for the card. `purpose` is a few words for others, such as `timing saxpy`.

        `check` is called while waiting and may raise; `on_wait` gets one sentence, once, when the wait is worth one.
        Raises `InUse`.
        """
        assert self._lock is None, "a lease is not acquired twice"
        started = time.monotonic()
        told = False

        def waited() -> None:
            nonlocal told
            since = time.monotonic() - started
            if check is not None:
                check()
            if since > wait_s:
                raise InUse(f"the GPU is in use by {self.holder() or 'another process'}: try again")
            if on_wait is not None and not told and since > _TOLD_AFTER_S:
                told = True
                on_wait(f"waiting for the GPU, which is in use by {self.holder() or 'another process'}")
            first, most = _SLEEPS_S
            time.sleep(min(most, max(first, since / 4)))

        turn = self._taken("turn", waited)
        try:
            self._lock = self._taken("lock", waited)
        finally:
            _close(turn)
        if self._lock is not None:
            _write(self._lock, f"{os.getpid()}\n{_user()}\n{purpose}\n")

    def release(self) -> None:
        """Let go of the card; nothing happens when it is not held."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _write(lock, "")
            _close(lock)

    def wanted(self) -> bool:
        """Whether somebody waits for the card that this lease holds."""
        turn = self._open("turn") if self._lock is not None else None
        if turn is None:
            return False
        try:
            return not _flock(turn)
        finally:
            _close(turn)

    def give_way(
        self, purpose: str, *, wait_s: float, before: Callable[[], None], check: Callable[[], None] | None = None
    ) -> None:
        """Let whoever waits have the card, and have it back afterwards; costs some microseconds when nobody waits.

        `before` is called before the card is let go: what was started there must have ended. Raises `InUse`.
        """
        if self.wanted():
            before()
            self.release()
            self.acquire(purpose, wait_s=wait_s, check=check)

    def holder(self) -> Holder | None:
        """Who says that it holds the card; meant for a sentence, since it may have let go meanwhile."""
        file = self._open("lock")
        if file is None:
            return None
        try:
            # Written by anybody, so it is cut short and kept to letters that show.
            lines = os.pread(file, 256, 0).decode("utf-8", "replace").split("\n")
        except OSError:
            return None
        finally:
            _close(file)
        words = ["".join(letter for letter in line if letter.isprintable()).replace("`", "'")[:80] for line in lines]
        if len(words) < 3 or not re.fullmatch(r"\d{1,10}", words[0]):
            return None
        return Holder(int(words[0]), words[1], words[2])

    def _taken(self, what: str, waited: Callable[[], None]) -> int | None:
        while True:
            file = self._open(what)
            if file is None:
                return None
            try:
                while not _flock(file):
                    waited()
            except BaseException:
                _close(file)
                raise
            # Somebody may have removed the file while we waited: then the lock is on nothing, and a new one is made.
            if os.fstat(file).st_nlink:
                return file
            _close(file)

    def _open(self, what: str) -> int | None:
        """The lock file of this card, made if it is not there; None where there is no folder for it."""
        name = f"{self.name}.{what}"
        places = [self._folder] if self._folder is not None else _folders()
        for place in places:
            folder = _usable(place)
            if folder is None:
                continue
            try:
                if (file := _lock_file(folder, name)) is not None:
                    return file
            finally:
                os.close(folder)
        log.warning("no place for the lock files of GPUs: %s", ", ".join(places))
        return None


def _folders() -> list[str]:
    own = os.environ.get("XDG_RUNTIME_DIR") or ""
    own = os.path.join(own, "dice-lsp") if own else os.path.join(tempfile.gettempdir(), f"dice-lsp-{os.getuid()}")
    return [os.environ.get(VARIABLE) or SHARED, own]


def _usable(path: str) -> int | None:
    """The folder opened, made if it is not there: one that all may write to and none may clear, or our own."""
    with contextlib.suppress(OSError):
        os.mkdir(path, 0o700)
        # The mode of `mkdir` is cut by the umask; only who made the folder comes here.
        os.chmod(path, 0o1777)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(folder)
    if status.st_uid in (0, os.getuid()) or status.st_mode & stat.S_ISVTX:
        return folder
    os.close(folder)
    return None


def _lock_file(folder: int, name: str) -> int | None:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(_TRIES):
        try:
            # Without O_CREAT first: fs.protected_regular forbids it for others' files in a folder like this.
            file = os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            try:
                file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
                os.fchmod(file, 0o666)
            except FileExistsError:
                continue
            except OSError:
                return None
        except OSError:
            return None
        status = os.fstat(file)
        # Never a link to somebody's file, nor a device: what we make is plain, has one name and is everybody's.
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if plain and status.st_mode & 0o666 == 0o666:
            return file
        os.close(file)
        if not plain:
            return None
        time.sleep(0.002)  # its maker is about to open it to all
    return None


def _flock(file: int) -> bool:
    """Whether the lock is ours now. A file system that cannot lock counts as granted."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR)
    return True


def _write(file: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode("utf-8", "replace"), 0)


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
