"""What a child may still do once it runs what a stranger wrote: read the system's files, write where it must, no network.

Three means of the kernel, each used where it is there. Landlock decides about files: what is not listed can be neither
read nor written, and nothing new may be executed unless the policy says so. Seccomp answers system calls that no child
of ours needs with EPERM: sockets that leave the machine, programs, other processes' memory, mounts, io_uring, which
would go round the filter. Resource limits are set by `process`. All three hold for everything that is started later
and cannot be taken back.

Written with ctypes: on PyPI `landlock` has had pre-releases only, and `pyseccomp` (last release in 2021) needs a system
library that is often missing. Sources: linux/landlock.h and Documentation/userspace-api/landlock.rst for the access
rights of each ABI, linux/seccomp.h, linux/filter.h and linux/audit.h for the filter, the kernel's tables of system calls.
"""

import ctypes
import errno
import functools
import glob
import os
import platform
import shutil
import stat
import struct
import sys
from collections.abc import Iterable, Sequence

from attrs import frozen

LEVELS = ("landlock", "seccomp", "limits")
"""How far a GPU's runner can be confined, strictest first; each holds what follows it too."""
SWITCH = "DICE_LSP_CONFINE"
"""Environment variable that names the level to begin with, for a driver that works with less only; `off` is the last."""
PR_SET_NO_NEW_PRIVS = 38

# linux/landlock.h
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_FIRST_ABI = (1 << 13) - 1
_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets and signals do not leave the domain (ABI 6)."""
_RULE_PATH_BENEATH = 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1

# linux/seccomp.h, linux/filter.h, linux/audit.h
_SET_MODE_FILTER, _TSYNC = 1, 1
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AF_UNIX = 1
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X32_BIT = 0x40000000


@frozen
class _Machine:
    """Numbers of system calls of one architecture. `denied` are those that no child needs, `starting` run programs."""

    audit: int
    seccomp: int
    socket: int
    starting: tuple[int, ...]
    denied: tuple[int, ...]


_MACHINES = {
    # ptrace, process_vm_readv, process_vm_writev, io_uring_setup, bpf, perf_event_open, userfaultfd, keyctl, add_key,
    # request_key, mount, umount2, pivot_root, unshare, setns, init_module, finit_module, kexec_load, open_by_handle_at,
    # pidfd_getfd, open_tree, move_mount, fsopen
    "x86_64": _Machine(
        0xC000003E, 317, 41, (59, 322),
        (101, 310, 311, 425, 321, 298, 323, 250, 248, 249, 165, 166, 155, 272, 308, 175, 313, 246, 304, 438, 428, 429, 430),
    ),
    "aarch64": _Machine(
        0xC00000B7, 277, 198, (221, 281),
        (117, 270, 271, 425, 280, 241, 282, 219, 217, 218, 40, 39, 41, 97, 268, 105, 273, 104, 265, 438, 428, 429, 430),
    ),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_machine = _MACHINES.get(platform.machine())


@frozen
class Policy:
    """What is allowed. Paths that do not exist are passed over; a folder stands for everything below it."""

    read: tuple[str, ...]
    write: tuple[str, ...] = ()
    """Files that may be written, folders in which files may also be made and removed. All of them may be read."""
    programs: bool = False
    """Programs that can be read may be run."""
    own_threads: bool = False
    """What the process says of its own threads may be written, their names say, when it enters by itself."""


class Confinement:
    """A policy made ready, so that entering it takes three system calls and no memory: it is done between fork and exec.

    `words` says what will hold: `landlock, seccomp, limits`, or `limits (no landlock in this kernel, no seccomp)`.
    """

    def __init__(self, policy: Policy, level: str = LEVELS[0]) -> None:
        """`level` leaves out what is stricter than it."""
        self._ruleset = _ruleset(policy) if level == "landlock" else None
        if policy.own_threads and self._ruleset is not None:
            # Kept open, or the system may forget this folder and make another one that the rule is not about.
            _allow(self._ruleset, _OWN_THREADS, _WRITE_FILE | (_TRUNCATE if landlock_abi() >= 3 else 0), keep=True)
        self._filter = _filter(policy.programs) if level != "limits" and seccomp_usable() else b""
        # Kept beside the program that points into it.
        self._code = ctypes.create_string_buffer(self._filter, len(self._filter)) if self._filter else None
        self._program = ctypes.create_string_buffer(
            struct.pack("HxxxxxxP", len(self._filter) // 8, ctypes.addressof(self._code)) if self._code else b"\0" * 16
        )
        given_up = LEVELS[: LEVELS.index(level)]
        self.words = words(self._ruleset is not None, bool(self._filter), given_up)

    def enter(self) -> None:
        """Confine this thread and whatever it starts. Raises `OSError` when the kernel refuses what it said it has."""
        if _libc is None:
            return
        _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        if self._ruleset is not None:
            _check(_libc.syscall(_RESTRICT_SELF, self._ruleset, 0))
        if self._filter and _machine is not None:
            # For all threads, if they have no filter of their own; libraries may have started some.
            if _libc.syscall(_machine.seccomp, _SET_MODE_FILTER, _TSYNC, self._program) != 0:
                _check(_libc.syscall(_machine.seccomp, _SET_MODE_FILTER, 0, self._program))

    def close(self) -> None:
        """Give back the descriptor; who has entered stays confined."""
        if self._ruleset is not None:
            os.close(self._ruleset)
            self._ruleset = None

    def __enter__(self) -> "Confinement":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def asked_level() -> str:
    """The level that the environment asks for, else the strictest."""
    asked = os.environ.get(SWITCH, "")
    return LEVELS[-1] if asked == "off" else asked if asked in LEVELS else LEVELS[0]


def words(landlock: bool, seccomp: bool, given_up: Sequence[str] = ()) -> str:
    """How a child is confined, for a person; limits and a deadline it always has. `given_up` was not tried."""
    means = (("landlock", landlock, "no landlock in this kernel"), ("seccomp", seccomp, "no seccomp"))
    held = [name for name, there, _ in means if there]
    missing = [what for name, there, what in means if not there and name not in given_up]
    return ", ".join([*held, "limits"]) + (f" ({', '.join(missing)})" if missing else "")


def _check(result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@functools.cache
def landlock_abi() -> int:
    """The kernel's version of landlock; 0 where it has none, or a container's filter keeps it away."""
    if _libc is None or _machine is None:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


@functools.cache
def seccomp_usable() -> bool:
    """Whether this kernel filters system calls by program. Asked with a program at no address, which it then refuses."""
    if _libc is None or _machine is None:
        return False
    _libc.syscall(_machine.seccomp, _SET_MODE_FILTER, 0, None)
    return ctypes.get_errno() == errno.EFAULT


def _ruleset(policy: Policy) -> int | None:
    abi = landlock_abi()
    if abi == 0:
        return None
    assert _libc is not None
    handled = _FIRST_ABI | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    attributes = struct.pack("Q", handled)
    if abi >= 4:
        attributes += struct.pack("Q", _TCP)
    if abi >= 6:
        attributes += struct.pack("Q", _SCOPES)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return None
    reading = _READ_FILE | _READ_DIR | (_EXECUTE if policy.programs else 0)
    for paths, access in ((policy.read, reading), (policy.write, handled & ~_EXECUTE)):
        for path in dict.fromkeys(paths):
            _allow(ruleset, path, access)
    return int(ruleset)


def _allow(ruleset: int, path: str, access: int, keep: bool = False) -> None:
    assert _libc is not None
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
        rule = struct.pack("=Qi", access, place)
        _libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        if not keep:
            os.close(place)


def _filter(programs: bool) -> bytes:
    """The program of the filter: everything is allowed but a list, which is answered with EPERM.

    A list of what is allowed would be better and cannot be had: what a driver or a compiler calls changes with each
    version. The host runner, whose calls are all ours, has such a list (`emulation/runner.cpp`).
    """
    assert _machine is not None
    denied = (*_machine.denied, *(() if programs else _machine.starting))
    refuse = _ERRNO | errno.EPERM
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, _machine.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if platform.machine() == "x86_64":
        code += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, refuse)]
    for number in denied:
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    code += [
        (_JUMP_EQUAL, 0, 3, _machine.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


# What our children need

_SYSTEM = (
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
)
"""Where a system keeps its programs, libraries and settings. Not the homes of users, nor /tmp, /srv, /mnt, /var."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU_DEVICES = ("/dev/nvidia*", "/dev/dxg", "/dev/nvgpu", "/dev/nvmap", "/dev/nvhost*", "/dev/dri/*")
"""The driver's device files: those of Linux, of WSL and of boards."""
_OWN_THREADS = "/proc/self/task"


def python_places() -> tuple[str, ...]:
    """Where this Python, its packages, and the libraries that are loaded already lie."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    places = [sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), os.path.join(root, "dice_lsp")]
    places += [path for path in sys.path if os.path.isabs(path) and path != root]
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if ".so" in line}
    except OSError:
        mapped = set()
    places += sorted({os.path.dirname(path) for path in mapped if os.path.isabs(path)})
    return tuple(dict.fromkeys(place for place in places if place != "/"))


def toolkit_places(environment: Iterable[str] = ("CUDA_HOME", "CUDA_PATH")) -> tuple[str, ...]:
    """Where a toolkit lies, and what the loader is told to search."""
    named = [os.environ.get(name, "") for name in environment]
    named += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return tuple(path for path in named if os.path.isabs(path) and path != "/")


def runner_policy(write: Sequence[str] = ()) -> Policy:
    """For the child that owns a GPU's context: the card's device files may be written, and no file.

    Beside those the driver (580) writes its threads' names, without which `cuInit` fails, and its cache of compiled
    PTX, without which it compiles our empty kernel in 16 ms.
    """
    devices = [path for pattern in _GPU_DEVICES for path in glob.glob(pattern)]
    read = (*_SYSTEM, "/dev", *python_places(), *toolkit_places())
    return Policy(read, (*_DEVICES, *devices, *write), own_threads=True)


def compiler_policy(compiler: str, read: Sequence[str], write: Sequence[str] = ()) -> Policy:
    """For a compiler: it starts its own parts, reads the system and the folders named, and writes where it is told."""
    names = (compiler, *_HOST_COMPILERS)
    own = [_home_of(found) for name in names if (found := shutil.which(name)) is not None]
    return Policy((*_SYSTEM, "/dev", *own, *toolkit_places(), *read), (*_DEVICES, *write), programs=True)


def python_program_policy(read: Sequence[str], write: Sequence[str]) -> Policy:
    """For Python that a stranger wrote: it uses the GPU and starts compilers, and writes only in the folders named."""
    devices = [path for pattern in _GPU_DEVICES for path in glob.glob(pattern)]
    homes = [
        _home_of(found) for name in ("nvcc", "ninja", *_HOST_COMPILERS) if (found := shutil.which(name)) is not None
    ]
    places = (*_SYSTEM, "/dev", *python_places(), *toolkit_places(), *homes, *read)
    return Policy(places, (*_DEVICES, *devices, *write), programs=True, own_threads=True)


def program_policy(files: Sequence[str]) -> Policy:
    """For a program of ours that needs its own files and the system's libraries, and writes nothing."""
    return Policy((*_SYSTEM, "/dev", *files), _DEVICES, programs=True)


_HOST_COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "clang++")
"""Those that nvcc looks for by itself."""


def _home_of(program: str) -> str:
    """The folder whose `bin` holds a program: its libraries and other parts lie there. Never a user's home."""
    folder = os.path.dirname(os.path.realpath(program))
    above = os.path.dirname(folder)
    return folder if above in ("/", os.path.realpath(os.path.expanduser("~"))) else above
