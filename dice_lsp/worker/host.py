"""Runs kernels on this machine's processor when there is no GPU: a `launch.Backend` named `host`.

The device text is rewritten lightly, compiled by g++ or clang++ against `emulation/emulation.h` into a shared object,
and run by `emulation/runner.cpp` in a child of its own: one fiber per thread, buffers between guard pages, shared memory
poisoned before each block, threads and blocks in a chosen order. What cannot be run is `NotSupported`, never a pass.

Floats: the compiler contracts nothing (the baseline processor has no fused multiply-add) and uses no fast mathematics,
so results differ from a GPU's by rounding and by its approximate functions; compare with tolerances.
"""

import contextlib
import hashlib
import mmap
import os
import re
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from attrs import evolve, frozen

from dice_lsp import process
from dice_lsp.records import CompileFailed, CompileMessage
from dice_lsp.worker.confine import Confinement, compiler_policy, program_policy
from dice_lsp.worker.elf import plain_name, variables
from dice_lsp.worker.host_text import FILE_NAME, Unsupported, prepare_text, standard_flag
from dice_lsp.worker.launch import (
    READ_UNORDERED,
    Array,
    BlockOrder,
    BufferArgument,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Pointer,
    Prepared,
    Ran,
    RunResult,
    ScalarArgument,
    Source,
)
from dice_lsp.worker.scratch import Scratch

_FLAGS = (
    "-O1", "-g1", "-w", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fsigned-char",
    "-fno-semantic-interposition", "-fstack-clash-protection", "-fvisibility=hidden", "-fno-threadsafe-statics",
)  # fmt: skip
_GCC_ONLY = ("-fno-gnu-unique", "-fno-allocation-dce")
_PATTERN = "-ftrivial-auto-var-init=pattern"
"""What a local variable holds before it is set: on a fresh stack that would be zero, which hides that it never was."""
_GCC_WATCH = ("--param=tsan-distinguish-volatile=1", "--param=tsan-instrument-func-entry-exit=0")
_CLANG_WATCH = ("-mllvm", "-tsan-distinguish-volatile=1", "-mllvm", "-tsan-instrument-func-entry-exit=0")
_ARITHMETIC = {
    "fused": ("-ffp-contract=fast", "-O2"),
    "defined": (
        "-fno-wrapv", "-fsanitize=signed-integer-overflow,float-cast-overflow,shift-exponent,integer-divide-by-zero",
        "-fsanitize-undefined-trap-on-error",
    ),
}  # fmt: skip
_FUSED_X86 = ("-mfma",)
_RUNNER_FLAGS = ("-std=c++17", "-O2", "-rdynamic", "-Wl,--no-as-needed")
_HEADERS = ("emulation.h", "interface.h", "double.h")
_VERSION = "1"

_MAX_BLOCK = (1024, 1024, 64)
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_SMEM_BYTES = 227 * 1024
_KERNEL_STACK_BYTES = 256 << 10
_BUILDS_OF_A_FOLDER = 256
"""A build takes about a hundred kilobytes, and a worker may live for days."""
_FUNCTION_STACK_BYTES = 64 << 20
_START_ALLOWANCE_S = 3.0
"""How much longer than the launches' deadlines the child may compute before it is killed from outside."""
_PATIENCE = 8.0
"""How many times as long it may take on a busy machine."""

_DEVICE_SECTION = "dice_device"
"""Where `emulation.h` puts variables marked `__device__` and `__managed__`."""

_WRITABLE, _INTEGER = 1, 2
"""Flags of an argument's record."""

_ORDERS = {BlockOrder.ASCENDING: 0, BlockOrder.DESCENDING: 1, BlockOrder.RANDOM: 2}
_GUARDS = {Guard.RIGHT: 0, Guard.LEFT: 1}
_HEADER = struct.Struct("<4I")
_VARIABLE = struct.Struct("<2Q")
_LAUNCH = struct.Struct("<3I3I8I2Q")
_ARGUMENT = struct.Struct("<2Q4I")
_POINTER = struct.Struct("<4IQ")
_SETTING = struct.Struct("<2IQ")
_JOB_MAGIC = 0x33454344

_WATCHED = {
    "part": "races were watched for in the first blocks only",
}

_SYSTEM_CALLS = {
    "x86_64": {2: "open", 41: "socket", 42: "connect", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 62: "kill",
               87: "unlink", 101: "ptrace", 257: "openat", 435: "clone3", 0: "read", 234: "tgkill", 13: "rt_sigaction",
               9: "mmap", 10: "mprotect"},
    "aarch64": {56: "openat", 198: "socket", 203: "connect", 220: "clone", 221: "execve", 129: "kill", 117: "ptrace",
                63: "read", 131: "tgkill", 435: "clone3", 134: "rt_sigaction", 222: "mmap", 226: "mprotect"},
}  # fmt: skip


@frozen
class Toolchain:
    """The C++ compiler, its first line of `--version`, and what was built with it for this machine."""

    cxx: str
    version: str
    clang: bool
    folder: Path
    runner: Path
    confinement: str
    """`seccomp` when the kernel lets a child filter its own system calls, else `limits`."""
    patterns: bool = False
    """The compiler can fill local variables with a pattern."""


def find_compiler(cxx: str | None = None) -> str | None:
    """The C++ compiler to use: the one that is set, else g++ or clang++ from PATH."""
    for name in (cxx,) if cxx else ("g++", "clang++", "c++"):
        found = shutil.which(name)
        if found:
            return found
    return None


def _compile(
    argv: Sequence[str], deadline_s: float, cwd: str | None = None, read: Sequence[str] = ()
) -> process.Finished:
    """Run a compiler that reads the system and `read`, and writes to `cwd` only."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": cwd or tempfile.gettempdir()}
    with Confinement(compiler_policy(argv[0], read, [] if cwd is None else [cwd])) as confinement:
        return process.run(argv, deadline_s=deadline_s, cwd=cwd, env=env, confine=confinement.enter)


class HostUnavailable(Exception):
    """This machine cannot emulate kernels; the message says what is missing."""


class HostBackend:
    """Emulates kernels on this machine. Building for a machine happens at the first kernel and is cached."""

    name = "host"
    kind = "host"

    def __init__(
        self,
        cxx: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        runner_flags: Sequence[str] = (),
    ) -> None:
        self._runner_flags = (*_RUNNER_FLAGS, *runner_flags)
        self._cxx = cxx
        self._cache_dir = Path(cache_dir) if cache_dir is not None else None
        self._toolchain: Toolchain | None = None
        self._scratch: list[Scratch] = []
        self._built: dict[str, HostKernel | CompileFailed | NotSupported] = {}
        self._lock = threading.RLock()
        self.compile_deadline_s = 60.0

    def toolchain(self) -> Toolchain:
        """The compiler and the runner, built if need be. Raises `HostUnavailable` with what is missing."""
        with self._lock:
            # A user may empty the cache under a worker that runs for days.
            if self._toolchain is None or not self._toolchain.runner.exists():
                self._toolchain = self._build_toolchain()
            return self._toolchain

    def describe(self) -> dict[str, str]:
        """For `doctor`: `compiler`, `version`, `confinement`; or `missing`, one sentence."""
        try:
            tools = self.toolchain()
        except HostUnavailable as error:
            return {"missing": str(error)}
        return {"compiler": tools.cxx, "version": tools.version, "confinement": tools.confinement}

    def prepare(self, source: Source) -> Prepared | CompileFailed | NotSupported:
        """Compile a kernel, or the reference function that `source.function` names, for this machine.

        A text that the device compiler has not accepted is refused. `CompileFailed` is only given for a reference
        function: a kernel that the device takes and the host does not is a limit of the emulation.
        """
        if source.function is None and source.compiled is None:
            return NotSupported("the kernel must compile for the device first")
        try:
            tools = self.toolchain()
        except HostUnavailable as error:
            return NotSupported(str(error))
        key = hashlib.sha256(repr((source.device_text, source.path, source.kernel, sorted(source.template.items()),
                                   source.include_dirs, source.pre_includes, source.flags, source.function, source.fp64, source.arithmetic,
                                   source.compiled.arch if source.compiled else "")).encode()).hexdigest()  # fmt: skip
        with self._lock:
            if key not in self._built:
                if len(self._built) >= _BUILDS_OF_A_FOLDER:
                    # What is being judged may still be in the folder before, but not in the one before that.
                    self._built.clear()
                    if len(self._scratch) > 1:
                        self._scratch.pop(0).close()
                    self._scratch.append(Scratch("host"))
                if not self._scratch:
                    self._scratch.append(Scratch("host"))
                self._built[key] = self._prepare(source, tools, self._scratch[-1].path / key[:24])
            return self._built[key]

    def close(self) -> None:
        """Remove what was compiled. No child outlives a call, so there is none to kill."""
        with self._lock:
            self._built.clear()
            while self._scratch:
                self._scratch.pop().close()

    def _build_toolchain(self) -> Toolchain:
        cxx = find_compiler(self._cxx)
        if cxx is None:
            wanted = f"{self._cxx} was not found" if self._cxx else "there is neither g++ nor clang++ on PATH"
            raise HostUnavailable(f"the host emulation needs a C++ compiler and {wanted}: install g++ or set dice.cxx")
        asked = _compile([cxx, "--version"], 20.0)
        if asked.returncode != 0:
            raise HostUnavailable(f"{cxx} --version failed: {_first_line(asked.stderr)}")
        version = asked.stdout.decode("utf-8", "replace").splitlines()[0]
        clang = "clang" in version
        package = resources.files("dice_lsp.worker") / "emulation"
        texts = {name: (package / name).read_bytes() for name in (*_HEADERS, "runner.cpp")}
        stubs = {item.name: item.read_bytes() for item in (package / "include").iterdir() if item.is_file()}
        stubs |= {
            f"cooperative_groups/{item.name}": item.read_bytes()
            for item in (package / "include" / "cooperative_groups").iterdir()
        }
        digest = hashlib.sha256(
            repr(
                (_VERSION, cxx, version, _FLAGS, self._runner_flags, sorted(texts.items()), sorted(stubs.items()))
            ).encode()
        )
        root = self._cache_dir or Path(platformdirs.user_cache_dir("dice-lsp"))
        folder = root / f"host-{digest.hexdigest()[:20]}"
        if not (folder / "runner").exists():
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="host-", dir=root, ignore_cleanup_errors=True) as building:
                fresh = Path(building) / "fresh"
                fresh.mkdir()
                for name, data in texts.items():
                    (fresh / name).write_bytes(data)
                for name, data in stubs.items():
                    (fresh / "include" / name).parent.mkdir(parents=True, exist_ok=True)
                    (fresh / "include" / name).write_bytes(data)
                argv = [cxx, *self._runner_flags, str(fresh / "runner.cpp"), "-o", str(fresh / "runner"), "-ldl", "-lm"]
                done = _compile(argv, 120.0, str(fresh))
                if done.returncode != 0:
                    raise HostUnavailable(f"{cxx} could not build the runner: {_first_error(done.stderr)}")
                # Another process may have been faster: then its folder is as good as ours.
                with contextlib.suppress(OSError):
                    fresh.rename(folder)
        asked = process.run([str(folder / "runner"), "--confinement"], deadline_s=20.0, env={})
        confinement = asked.stdout.decode("ascii", "replace").strip()
        if confinement not in ("seccomp", "limits"):
            raise HostUnavailable(f"the runner in {folder} does not start: remove that folder and try again")
        asked = _compile([cxx, _PATTERN, "-x", "c++", "-fsyntax-only", os.devnull], 20.0)
        return Toolchain(cxx, version, clang, folder, folder / "runner", confinement, asked.returncode == 0)

    def _precompiled(self, tools: Toolchain, flags: Sequence[str]) -> Path:
        """The header to include first for these flags, its precompiled form beside it."""
        name = hashlib.sha256(repr(flags).encode()).hexdigest()[:12]
        folder = tools.folder / f"pch-{name}"
        suffix = ".pch" if tools.clang else ".gch"
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix="pch-", dir=tools.folder, ignore_cleanup_errors=True) as building:
                fresh = Path(building) / "fresh"
                fresh.mkdir()
                for header in _HEADERS:
                    shutil.copy(tools.folder / header, fresh / header)
                target = fresh / "emulation.h"
                argv = [tools.cxx, *flags, "-x", "c++-header", str(target), "-o", str(target) + suffix]
                done = _compile(argv, 120.0, str(fresh))
                if done.returncode != 0:
                    raise HostUnavailable(
                        f"{tools.cxx} could not precompile the emulation: {_first_error(done.stderr)}"
                    )
                with contextlib.suppress(OSError):
                    fresh.rename(folder)
        return folder / "emulation.h"

    def _prepare(self, source: Source, tools: Toolchain, folder: Path) -> "HostKernel | CompileFailed | NotSupported":
        # The folder is only for its shared object: nothing of it is read again.
        try:
            text = prepare_text(source)
        except Unsupported as error:
            return NotSupported(str(error))
        folder.mkdir(parents=True, exist_ok=True)
        main = folder / text.main
        for name, content in text.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8", errors="surrogateescape")
        flags = [standard_flag(source.flags), *_FLAGS, *(() if tools.clang else _GCC_ONLY)]
        if source.function is None:
            # A reference function may well run past an inner dimension, and has one thread only.
            flags.append("-fsanitize=bounds,alignment,thread" if text.vectors else "-fsanitize=bounds,thread")
            flags += _CLANG_WATCH if tools.clang else _GCC_WATCH
            flags += [_PATTERN] if tools.patterns else []
        elif source.arithmetic == "fused" and not _fuses():
            return NotSupported("this processor has no fused multiply-add")
        elif source.arithmetic:
            flags += _ARITHMETIC[source.arithmetic]
            flags += _FUSED_X86 if source.arithmetic == "fused" and os.uname().machine == "x86_64" else ()
        try:
            header = self._precompiled(tools, flags)
        except HostUnavailable as error:
            return NotSupported(str(error))
        shared = folder / "kernel.so"
        include = ["-I", str(folder / "text" / "include"), "-I", str(tools.folder), "-I", str(tools.folder / "include")]
        for directory in source.include_dirs:
            include += ["-I", directory]
        first = ["-include-pch", f"{header}.pch"] if tools.clang else ["-include", str(header)]
        libraries = ["-nodefaultlibs", "-lgcc"] if source.function is None else ["-lstdc++", "-lm"]
        argv = [
            tools.cxx, *flags, "-shared", "-fno-diagnostics-color", "-fmax-errors=5" if not tools.clang else "-ferror-limit=5",
            *first, *include, str(main), "-o", str(shared), *libraries,
        ]  # fmt: skip
        done = _compile(argv, self.compile_deadline_s, str(folder), [str(tools.folder), *source.include_dirs])
        if done.timed_out:
            return NotSupported(f"the host compiler did not end within {self.compile_deadline_s:g} s")
        if done.returncode != 0 or not shared.exists():
            messages = _messages(done.stderr)
            own = tuple(message for file, message in messages if file == FILE_NAME)
            if source.function is not None and not source.fp64 and own:
                return CompileFailed(f"{'clang++' if tools.clang else 'g++'} (host)", own)
            if text.dropped and source.function is None:
                return NotSupported(f"{text.dropped[0]} is not supported on the host")
            what = _first_error(done.stderr)
            if messages:
                file, message = messages[0]
                place = f"line {message.line + 1}" + ("" if file == FILE_NAME else f" of {file}")
                what = f"{message.text} ({place})"
            return NotSupported(f"the host compiler does not take it: {what}")
        return HostKernel(source, self.toolchain, shared, text.vectors, text.shared_arrays, text.notes)


def _fuses() -> bool:
    """This processor has a fused multiply-add."""
    if os.uname().machine != "x86_64":
        return os.uname().machine == "aarch64"
    try:
        return re.search(r"^flags\b.*\bfma\b", Path("/proc/cpuinfo").read_text(), re.M) is not None
    except OSError:
        return False


def _first_line(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else "it said nothing"


def _first_error(data: bytes) -> str:
    for line in data.decode("utf-8", "replace").splitlines():
        if "error" in line:
            return line.strip()
    return _first_line(data)


_MESSAGE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?(?P<severity>error): (?P<text>.*)$", re.M
)


def _messages(stderr: bytes) -> list[tuple[str, CompileMessage]]:
    """The compiler's errors, each with the name of its file."""
    return [
        (m["file"].rpartition("/")[2], CompileMessage(int(m["line"]) - 1, int(m["column"]) - 1, "error", m["text"]))
        for m in _MESSAGE.finditer(stderr.decode("utf-8", "replace"))
    ]


class HostKernel:
    """A kernel, or a reference function, as a shared object of this machine."""

    def __init__(
        self,
        source: Source,
        toolchain: Callable[[], Toolchain],
        shared: Path,
        vectors: bool,
        shared_arrays: frozenset[str],
        notes: tuple[str, ...],
    ) -> None:
        self._source = source
        self._toolchain = toolchain
        self._shared = shared
        self._vectors = vectors
        self._shared_arrays = shared_arrays
        self._notes = notes
        found = variables(shared.read_bytes()) if source.function is None else ()
        mine = [variable for variable in found if variable.section == _DEVICE_SECTION]
        self._variables = sorted(mine, key=lambda variable: variable.address)
        self._pointers = frozenset(parameter.name for parameter in source.kernel.parameters if parameter.pointer)
        kinds = {
            parameter.name: source.template.get(parameter.element, parameter.element)
            for parameter in source.kernel.parameters
        }
        self._integers = frozenset(name for name, element in kinds.items() if _scalar_kind(element) in "iu")
        self._scalar_kinds = {name: _scalar_kind(element) for name, element in kinds.items()}

    def run(self, launches: Sequence[Launch]) -> list[RunResult]:
        """Run the launches in order in one child, each with fresh buffers, device variables and shared memory.

        Stops after the first that did not end as `Ran`. Every launch is killed at its own `deadline_s`.
        """
        results: list[RunResult] = []
        if not launches:
            return results
        valid: list[Launch] = []
        invalid: RunResult | None = None
        for launch in launches:
            invalid = _invalid(launch)
            if invalid is not None:
                break
            valid.append(launch)
        if valid:
            results = self._run(valid)
        if invalid is not None and len(results) == len(valid) and all(isinstance(r, Ran) for r in results):
            results.append(invalid)
        return results

    def _run(self, launches: Sequence[Launch]) -> list[RunResult]:
        function = self._source.function is not None
        if function:
            launches = [_as_function_call(launch) for launch in launches]
        # The runner wants what is passed first, in the order of the parameters.
        launches = [
            evolve(launch, arguments=tuple(sorted(launch.arguments, key=_is_hidden))) for launch in launches
        ]  # fmt: skip
        missing = next(
            (name for launch in launches for name in launch.variables if self._number_of(name) is None), None
        )
        if missing is not None:
            return [NotSupported(f"the variable {plain_name(missing)} of the recorded launch is not in the text")]
        layout = self._layout(launches)
        records, offsets, total = layout.records, layout.offsets, layout.total
        fd = os.memfd_create("dice-job", os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else _unlinked_file()
        try:
            os.ftruncate(fd, total)
            with mmap.mmap(fd, total) as job:
                job[: len(records)] = records
                for launch, places in zip(launches, offsets, strict=True):
                    for argument, offset in zip(launch.arguments, places, strict=True):
                        data = _bytes_of(argument)
                        job[offset : offset + len(data)] = data
                for offset, data in layout.settings:
                    job[offset : offset + len(data)] = data
                # Deadlines are the processor's time; a machine that has other work takes longer.
                cpu_s = sum(launch.deadline_s for launch in launches) + _START_ALLOWANCE_S
                deadline = _PATIENCE * cpu_s
                memory = (4 << 30) + 8 * total + sum(
                    64 << 20 for launch in launches[:1] for _ in launch.arguments
                ) + (1024 * (_KERNEL_STACK_BYTES + (64 << 10)))  # fmt: skip
                limits = process.Limits(
                    address_space_bytes=memory, cpu_s=int(cpu_s) + 2, file_bytes=0, open_files=64, niceness=1
                )
                stack = _FUNCTION_STACK_BYTES if function else _KERNEL_STACK_BYTES
                runner = self._toolchain().runner
                with Confinement(program_policy([str(runner), str(self._shared)])) as confinement:
                    done = process.run(
                        [str(runner), str(self._shared), str(fd), str(stack)],
                        deadline_s=deadline,
                        limits=limits,
                        env={},
                        pass_fds=(fd,),
                        confine=confinement.enter,
                    )
                return self._read(done, launches, offsets, job)
        finally:
            os.close(fd)

    def _layout(self, launches: Sequence[Launch]) -> "_Layout":
        head = [_HEADER.pack(_JOB_MAGIC, len(launches), len(self._variables), self._source.function is not None)]
        head += [_VARIABLE.pack(variable.address, variable.size_bytes) for variable in self._variables]
        at = sum(map(len, head)) + sum(
            _LAUNCH.size
            + _ARGUMENT.size * len(launch.arguments)
            + _POINTER.size * len(_pointers(launch))
            + _SETTING.size * len(launch.variables)
            for launch in launches
        )
        tail: list[bytes] = []
        offsets: list[list[int]] = []
        for launch in launches:
            smem_bytes = launch.smem_bytes * (2 if self._source.fp64 else 1)
            head.append(
                _LAUNCH.pack(
                    *launch.grid,
                    *launch.block,
                    smem_bytes,
                    _ORDERS[launch.order],
                    _GUARDS[launch.guard],
                    len(launch.arguments),
                    launch.shift_bytes,
                    len(_pointers(launch)),
                    len(launch.variables),
                    0,
                    launch.seed & (2**64 - 1),
                    max(1, int(launch.deadline_s * 1e6)),
                )
            )
            places = []
            for argument in launch.arguments:
                at = (at + 63) // 64 * 64
                places.append(at)
                if isinstance(argument, BufferArgument):
                    size, itemsize = argument.initial.nbytes, max(1, argument.itemsize)
                    if self._source.fp64 and argument.initial.dtype == np.float64:
                        itemsize = max(8, itemsize)
                    align = max(16, itemsize & -itemsize) if self._vectors else itemsize & -itemsize
                    flags = _WRITABLE * argument.writable + _INTEGER * (argument.name in self._integers)
                    tail.append(_ARGUMENT.pack(size, at, ord("p" if argument.passed else "h"), flags, itemsize, align))
                else:
                    size = len(argument.data)
                    kind = self._scalar_kinds.get(argument.name, "b") if self._source.function is not None else "b"
                    tail.append(
                        _ARGUMENT.pack(size, at, ord("a" if argument.name in self._pointers else kind), 0, 1, 1)
                    )
                at += size
            offsets.append(places)
        for launch in launches:
            numbers = {
                argument.name: n for n, argument in enumerate(launch.arguments) if isinstance(argument, BufferArgument)
            }
            tail += [
                _POINTER.pack(number, pointer.offset, numbers[pointer.buffer], 0, pointer.byte_offset)
                for number, pointer in _pointers(launch)
            ]
        settings: list[tuple[int, bytes]] = []
        for launch in launches:
            for name, data in launch.variables.items():
                if (number := self._number_of(name)) is not None:
                    tail.append(_SETTING.pack(number, len(data), at))
                    settings.append((at, data))
                    at += len(data)
        return _Layout(b"".join(head + tail), offsets, settings, max(at, 1))

    def _number_of(self, name: str) -> int | None:
        """The number of a device variable by its mangled name, or by its plain one where that is the only such."""
        exact = [n for n, variable in enumerate(self._variables) if variable.symbol == name]
        plain = [n for n, variable in enumerate(self._variables) if variable.name == plain_name(name)]
        return exact[0] if exact else plain[0] if len(plain) == 1 else None

    def _read(
        self, done: process.Finished, launches: Sequence[Launch], offsets: list[list[int]], job: mmap.mmap
    ) -> list[RunResult]:
        results: list[RunResult] = []
        notes = self._notes
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            word, *rest = line.split("\t")
            if word == "confinement":
                how = "system-call filter and limits" if rest == ["seccomp"] else "limits only, no system-call filter"
                notes = (*notes, f"confined by {how}")
            elif word == "ran" and len(results) < len(launches):
                launch, places = launches[len(results)], offsets[len(results)]
                outputs: dict[str, Array] = {}
                for argument, offset in zip(launch.arguments, places, strict=True):
                    if isinstance(argument, BufferArgument):
                        first = argument.initial
                        outputs[argument.name] = np.frombuffer(job, first.dtype, first.size, offset).copy()
                seen = [_WATCHED[rest[1]]] if rest[1] in _WATCHED else []
                for number in rest[3].split(",") if rest[3] else ():
                    name = launch.arguments[int(number)].name
                    seen.append(f"`{name}` {READ_UNORDERED}")
                told = (*_without_set(notes, launch.variables), *seen)
                results.append(Ran(outputs, int(rest[0]) / 1e6, told, self._changed(rest[2])))
            elif len(results) < len(launches):
                results.append(self._fault(word, rest, launches[len(results)]))
                return results
        if len(results) < len(launches):
            launch = launches[len(results)]
            if done.timed_out or done.returncode in (-24, -9):
                results.append(Faulted("timeout", f"no end within {launch.deadline_s:g} s"))
            else:
                how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
                results.append(Faulted("fault", f"the process ended before the kernel did ({how})"))
        return results

    def _changed(self, numbers: str) -> tuple[str, ...]:
        """The names of the device variables that the runner tells by their numbers."""
        changed = [int(number) for number in numbers.split(",") if number]
        return tuple(
            dict.fromkeys(self._variables[number].name if number >= 0 else "a device variable" for number in changed)
        )

    def _fault(self, word: str, rest: list[str], launch: Launch) -> RunResult:
        """The result that an answer of the runner means; its fields are listed in `runner.cpp`."""
        if word == "arity":
            return NotSupported(f"the function takes {rest[0]} arguments and gets {rest[1]}")
        if word == "mismatch":
            name = launch.arguments[int(rest[0])].name
            what = "a pointer" if rest[1] == "p" else "a value"
            return NotSupported(f"parameter {name} is {what} of {rest[2]} bytes and gets something else")
        if word == "unable":
            missing = re.search(r"undefined symbol: (\S+)", " ".join(rest))
            if missing:
                return NotSupported(f"{missing[1]} is not defined on the host")
            return NotSupported(f"the host runner failed: {' '.join(rest)}")
        if len(rest) < 3:
            return Faulted("fault", "the kernel spoiled its runner")
        *fields, block, thread, offset = rest
        place = self._place(block, thread)
        if word == "timeout":
            return Faulted("timeout", f"no end within {launch.deadline_s:g} s{self._line(offset)}{place}")
        if word == "syscall":
            number = int(fields[0])
            name = _SYSTEM_CALLS.get(os.uname().machine, {}).get(number, str(number))
            return Faulted("fault", f"the system call {name} is not allowed")
        if word in ("oob", "readonly"):
            argument = launch.arguments[int(fields[0])]
            assert isinstance(argument, BufferArgument)
            itemsize = argument.itemsize
            if self._source.fp64 and argument.initial.dtype == np.float64:
                itemsize = max(8, itemsize)
            where = f"{argument.name}[{fields[1]}]"
            line = self._line(offset)
            if word == "readonly":
                return Faulted("mutated_input", f"{where}{line}{place}")
            access = {"w": ", written", "r": ", read"}.get(fields[2], "")
            return Faulted(
                "out_of_bounds", f"{where} of {argument.initial.nbytes // max(1, itemsize)}{access}{line}{place}"
            )
        if word == "race":
            index, element, how, other = fields
            line = self._line(offset)
            if index == "-1":
                what = self._shared_name(line)
                how = "reads what" if how == "read" else "writes what"
                why = f"this thread {how} {other} touched since the last barrier"
            else:
                raced = launch.arguments[int(index)].name if index != "-2" else "a device variable"
                what = f"{raced}[{element}]" if index != "-2" else raced
                why = f"{other} wrote it too, with another value and nothing to order the two"
                if how == "read":
                    why = f"this thread reads what {other} wrote, with nothing to order the two"
            return Faulted("race", f"{what}: {why}{line}{place}")
        if word == "bounds":
            index, array, line_number, column = fields
            indexed, shared = self._indexed(int(line_number), int(column))
            where = f"index {index} of {indexed or array.strip(chr(39))}" + (
                f" ({array.strip(chr(39))})" if indexed else ""
            )
            return Faulted("shared_memory" if shared else "out_of_bounds", f"{where}, line {line_number}{place}")
        if word == "stop":
            hazard, what, line_number = fields
            if hazard == "unsupported":
                return NotSupported(what if "memory" in what else f"{what} not supported on the host")
            line = f", line {line_number}" if line_number != "0" else self._line(offset)
            return Faulted(hazard, f"{what}{line}{place}")
        return Faulted("fault", "the kernel spoiled its runner")

    def _place(self, block: str, thread: str) -> str:
        if self._source.function is not None:
            return ""
        return f", block ({block}), thread ({thread})"

    def _shared_name(self, line: str) -> str:
        """`shared memory`, or the one shared array that a line of the text names."""
        lines = self._source.device_text.splitlines()
        number = int(line.rpartition(" ")[2]) if line else 0
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        named = {name for name in re.findall(r"[A-Za-z_]\w*", text) if name in self._shared_arrays}
        return f"shared memory {named.pop()}" if len(named) == 1 else "shared memory"

    def _indexed(self, line: int, column: int) -> tuple[str | None, bool]:
        """The array that the compiler's check at a place of the text is about, and whether it is shared memory."""
        lines = self._source.device_text.splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        names = [(m.start(), m[1]) for m in re.finditer(r"([A-Za-z_]\w*)\s*\[", text)]
        near = [name for start, name in names if start < column] or [name for _, name in names]
        shared = [name for name in near if name in self._shared_arrays]
        if len(set(names)) and shared and (near[-1] in self._shared_arrays or len(shared) == len(near)):
            return near[-1], True
        return (near[-1] if near else None), bool(shared) and not near

    def _line(self, offset: str) -> str:
        """`, line 12` for a place in the shared object, from its line table; empty when it is not to be had."""
        addr2line = shutil.which("addr2line")
        with contextlib.suppress(ValueError, OSError):
            if addr2line is None or not 0 < int(offset) < self._shared.stat().st_size * 2:
                return ""
            argv = [addr2line, "-i", "-e", str(self._shared), hex(int(offset))]
            done = process.run(argv, deadline_s=5.0)
            for frame in done.stdout.decode("utf-8", "replace").splitlines():
                match = re.search(r"(?:^|/)kernel\.cu(?:\.cpp)?:(\d+)", frame)
                if match:
                    return f", line {match[1]}"
        return ""


@frozen
class _Layout:
    """A job for the runner: its records, where the bytes of each launch's arguments and variables lie, and its length."""

    records: bytes
    offsets: list[list[int]]
    settings: list[tuple[int, bytes]]
    total: int


def _without_set(notes: Sequence[str], variables: Mapping[str, bytes]) -> tuple[str, ...]:
    """The notes without those that say that a variable is zero which the launch sets."""
    names = {plain_name(symbol) for symbol in variables}
    return tuple(note for note in notes if not any(note.startswith(f"constant memory {name} ") for name in names))


def _is_hidden(argument: BufferArgument | ScalarArgument) -> bool:
    return isinstance(argument, BufferArgument) and not argument.passed


def _pointers(launch: Launch) -> list[tuple[int, Pointer]]:
    """The pointers among a launch's by-value arguments, each with its argument's number."""
    return [
        (number, pointer)
        for number, argument in enumerate(launch.arguments)
        if isinstance(argument, ScalarArgument)
        for pointer in argument.pointers
    ]


def _scalar_kind(element: str) -> str:
    words = element.replace("const", "").split()
    if not words:
        return "b"
    if words[-1] in ("float", "double"):
        return "f"
    if "unsigned" in words or words[-1] in ("bool", "size_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "uint"):
        return "u"
    if set(words) & {"int", "long", "short", "char", "int8_t", "int16_t", "int32_t", "int64_t", "ptrdiff_t", "ssize_t"}:
        return "i"
    return "b"


def _bytes_of(argument: BufferArgument | ScalarArgument) -> Any:
    if isinstance(argument, ScalarArgument):
        return argument.data
    return np.ascontiguousarray(argument.initial).reshape(-1).view(np.uint8).data


def _as_function_call(launch: Launch) -> Launch:
    return Launch(
        (1, 1, 1), (1, 1, 1), 0, launch.arguments, BlockOrder.ASCENDING, launch.guard, launch.seed, launch.deadline_s
    )  # fmt: skip


def _invalid(launch: Launch) -> RunResult | None:
    """What a GPU would refuse to launch."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if min(*launch.grid, *launch.block) < 1:
        return Faulted("fault", f"the launch is invalid: grid {launch.grid} and block {launch.block} must be positive")
    if threads > 1024 or any(b > limit for b, limit in zip(launch.block, _MAX_BLOCK, strict=True)):
        return Faulted(
            "fault", f"the launch is invalid: a block of {launch.block} is over 1024 threads or (1024, 1024, 64)"
        )
    if any(g > limit for g, limit in zip(launch.grid, _MAX_GRID, strict=True)):
        return Faulted("fault", f"the launch is invalid: a grid of {launch.grid} is over (2147483647, 65535, 65535)")
    if not 0 <= launch.smem_bytes <= _MAX_SMEM_BYTES:
        return Faulted(
            "fault", f"the launch is invalid: {launch.smem_bytes} bytes of dynamic shared memory are over 227 KiB"
        )
    return None


def _unlinked_file() -> int:
    with tempfile.TemporaryFile(prefix="dice-job-") as file:
        return os.dup(file.fileno())
