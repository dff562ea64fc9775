"""One run of the user's program while its launches are recorded: what is asked, what is checked first, what is said after.

Only the user starts it, with a command that is shown. The program runs with the user's rights and is not confined:
it is the user's own, and it would not run otherwise.
"""

import asyncio
import contextlib
import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from dice_lsp import process
from dice_lsp.capture import library, store
from dice_lsp.capture.keeping import Kept, Running, recover
from dice_lsp.capture.names import device_variables
from dice_lsp.capture.recording import CaptureError
from dice_lsp.records import Document, Kernel, to_wire
from dice_lsp.source.embedded import unit
from dice_lsp.source.kernels import parse
from dice_lsp.source.slice import device_slice, kernel_slice_key

DEFAULT_LIMIT_MB = 512
DEFAULT_LAUNCHES = 6
DEFAULT_WAIT_S = 10
INJECTION = "CUDA_INJECTION64_PATH"
PROBE_DEADLINE_S = 60.0

Start = Callable[[Sequence[str], Mapping[str, str], str], int]
"""Runs a program to its end in a folder and returns its exit code, negative for a signal. Raises `OSError`."""


@frozen
class Source:
    """A file whose kernels are recorded."""

    path: str
    """Absolute, links resolved."""
    document: Document
    kernels: tuple[Kernel, ...]

    @property
    def text(self) -> str:
        return self.document.text


@frozen
class Wish:
    """What is recorded, and how much."""

    sources: tuple[Source, ...]
    command: tuple[str, ...]
    folder: str
    """Where the program is started."""
    project: str
    """Whose `.dice` the recording is kept in; the sources lie below it."""
    environment: Mapping[str, str] = field(factory=dict)
    """Variables that the command sets."""
    limit_mb: int = DEFAULT_LIMIT_MB
    launches: int = DEFAULT_LAUNCHES
    """Kept of each kernel."""
    wait_s: int = DEFAULT_WAIT_S
    """How long a launch is waited for: one that waits for the host would never end."""
    trace: bool = False
    """Every callback is written down, for a report of an error."""


@frozen
class CaptureReport:
    """What came of a run, for an editor."""

    kernels: Mapping[str, int]
    """Kernel of the document -> launches that were recorded."""
    nbytes: int
    path: str
    """The recording; empty when there is none."""
    reason: str | None
    """One sentence when nothing was recorded."""
    notes: tuple[str, ...] = ()
    kept: Kept | None = None
    exit_code: int | None = None


def source_of(path: str, document: Document, kernels: Sequence[str] | None = None) -> Source:
    """The kernels of a document that are to be recorded, all or those named. Raises `CaptureError`."""
    found = parse(document.text).kernels
    if kernels is not None:
        for name in kernels:
            if not any(name in (kernel.id, kernel.name, kernel.qualified_name) for kernel in found):
                names = ", ".join(kernel.id for kernel in found) or "none"
                raise CaptureError(f"{path} has no kernel {name}; it has {names}")
        found = tuple(k for k in found if {k.id, k.name, k.qualified_name} & set(kernels))
    if not found:
        raise CaptureError(f"{path} has no __global__ function with a body")
    return Source(os.path.realpath(path), document, tuple(found))


def words_of(line: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """A command line as the words of a program and the variables that it sets before. Raises `CaptureError`.

    No shell sees it: what only a shell understands is refused, so that nothing is run that is not meant.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise CaptureError(f"the command `{line}` cannot be read: {str(error).lower()}") from error
    if any(word and set(word) <= set("();<>|&") for word in words):
        raise CaptureError(f'the command `{line}` is for a shell, which does not see it: write `sh -c "..."`')
    environment: dict[str, str] = {}
    while words and (name := words[0].partition("=")[0]).isidentifier() and "=" in words[0]:
        environment[name] = words.pop(0).partition("=")[2]
    if not words:
        raise CaptureError("the command is empty: write the program and its arguments")
    return tuple(words), environment


def record(
    wish: Wish,
    start: Start,
    on_progress: Callable[[str], None] = lambda words: None,
    found: tuple[Path, Path] | None = None,
) -> CaptureReport:
    """Run the program and keep what it launched; blocks until it ends. `found` is what `tools` gave before, if it did.

    Raises `CaptureError` when it was not run: no GPU, no CUPTI, no compiler, no program, no place for the recording.
    """
    if sys.platform != "linux":
        raise CaptureError("launches can be recorded on Linux only")
    project = Path(os.path.realpath(wish.project))
    environment = {**os.environ, **wish.environment}
    if environment.get(INJECTION):
        raise CaptureError(
            f"{INJECTION} is set already to {environment[INJECTION]}: unset it, one tool at a time can record"
        )
    on_progress("looking for the driver")
    injected, cupti = found or tools(environment)
    place = store.prepare(project)
    for kept in recover(place):
        on_progress(f"kept what an earlier run recorded: {kept.path}")
    request, notes = _request(wish, project)
    kernels = dict.fromkeys(kernel.name for source in wish.sources for kernel in source.kernels)
    variables = dict.fromkeys(name for source in wish.sources for name in device_variables(source.text))
    running = Running(place, request, wish.limit_mb << 20, {"kernels": kernels, "variables": variables})
    try:
        given = _environment(wish, running.folder, injected, cupti)
        on_progress(f"running {shlex.join(wish.command)}")
        try:
            code = start(wish.command, {**environment, **given}, wish.folder)
        except (FileNotFoundError, NotADirectoryError):
            raise CaptureError(_not_found(wish)) from None
        except PermissionError:
            raise CaptureError(f"{wish.command[0]} may not be executed: chmod +x it, or name its interpreter") from None
        except OSError as error:
            raise CaptureError(f"{wish.command[0]} cannot be run: {(error.strerror or str(error)).lower()}") from error
    except BaseException:
        # A cancelled run keeps what was recorded so far; one that never began has nothing.
        with contextlib.suppress(CaptureError):
            running.keep({"exit_code": None, "notes": ["the run was stopped"]})
        raise
    if code:
        notes.append(f"the program {_ended(code)}; what it launched before is recorded")
    kept = running.keep({"exit_code": code, "notes": notes})
    return _report(wish, kept, code)


async def capture(
    document: Document,
    path: str,
    command: str,
    *,
    kernels: Sequence[str] | None = None,
    folder: str | None = None,
    on_progress: Callable[[str], None] | None = None,
    deadline_s: float = 600.0,
) -> CaptureReport:
    """Record a run for an editor: nothing blocks, the program's output is kept back, and a cancel kills the program.

    `folder` is where the program starts, by default the file's project. What cannot be done is the report's `reason`.
    """
    loop = asyncio.get_running_loop()
    cancelled = threading.Event()

    def tell(words: str) -> None:
        if on_progress is not None and not cancelled.is_set():
            loop.call_soon_threadsafe(on_progress, words)

    def work() -> CaptureReport:
        return capture_now(
            document,
            path,
            command,
            kernels=kernels,
            folder=folder,
            on_progress=tell,
            deadline_s=deadline_s,
            cancelled=cancelled,
        )

    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        with contextlib.suppress(process.Cancelled):
            await task
        raise


def capture_now(
    document: Document,
    path: str,
    command: str,
    *,
    kernels: Sequence[str] | None = None,
    folder: str | None = None,
    on_progress: Callable[[str], None] = lambda words: None,
    deadline_s: float = 600.0,
    cancelled: threading.Event | None = None,
) -> CaptureReport:
    """`capture` for a thread. Raises `process.Cancelled` once `cancelled` is set."""
    said = bytearray()

    def hear(data: bytes) -> None:
        said.extend(data)
        del said[:-4096]

    def start(argv: Sequence[str], environment: Mapping[str, str], where: str) -> int:
        return process.attended(
            argv, env=environment, cwd=where, on_output=hear, deadline_s=deadline_s, cancelled=cancelled
        )

    try:
        words, variables = words_of(command)
        source = source_of(path, document, kernels)
        project = str(store.project_of(Path(source.path).parent))
        wish = Wish((source,), words, folder or project, project, variables)
        report = record(wish, start, on_progress)
    except CaptureError as error:
        return CaptureReport({}, 0, "", str(error))
    lines = said.decode(errors="replace").strip().splitlines()
    if report.exit_code and lines:
        return evolve(report, notes=(*report.notes, f"the program said last: {lines[-1].strip()[:200]}"))
    return report


def tools(environment: Mapping[str, str]) -> tuple[Path, Path]:
    """Our library and CUPTI, both loadable here, on a machine with a GPU. Raises `CaptureError` with the first lack."""
    found = _probe(environment)
    if found["driver"]:
        raise CaptureError(
            "no NVIDIA driver is here (libcuda.so.1 cannot be loaded): launches are recorded on a machine with a GPU"
        )
    if found["status"] or not found["devices"]:
        for device in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"):
            if os.path.exists(device) and not os.access(device, os.R_OK | os.W_OK):
                raise CaptureError(f"{device} may not be opened by this user: ask for the group that may")
        raise CaptureError(
            f"the NVIDIA driver finds no GPU (cuInit says {found['status']}): launches are recorded on a machine with a GPU"
        )
    cupti = library.find_cupti(found["cuda"], environment)
    if cupti is None:
        raise CaptureError("CUPTI is not here (libcupti.so), which tells of launches: pip install nvidia-cuda-cupti")
    injected = library.build()
    found = _probe(environment, str(injected), str(cupti))
    if found["library"]:
        raise CaptureError(f"the library that records cannot be loaded: {found['library'].rstrip('.')}")
    if found["cupti"]:
        raise CaptureError(f"CUPTI cannot be loaded: {found['cupti'].rstrip('.')}")
    return injected, cupti


def _probe(environment: Mapping[str, str], *libraries: str) -> dict[str, Any]:
    done = process.run(
        process.module_command("dice_lsp.capture.probe", *libraries),
        deadline_s=PROBE_DEADLINE_S, limits=process.Limits(), env=environment,
    )  # fmt: skip
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        how = "did not answer" if done.timed_out else _ended(done.returncode)
        raise CaptureError(f"the NVIDIA driver cannot be asked: the process that loads it {how}") from None


def _request(wish: Wish, project: Path) -> tuple[dict[str, Any], list[str]]:
    """What the recording will say of files and kernels, and what the user should know before he believes it."""
    notes = []
    files: dict[str, Any] = {}
    built = _built(wish)
    for source in wish.sources:
        name = Path(os.path.relpath(source.path, project)).as_posix()
        stale = False
        with contextlib.suppress(OSError):
            stale = built is not None and os.stat(source.path).st_mtime > built
        if stale:
            notes.append(
                f"{wish.command[0]} is older than {name}: build it again, else what it does is no evidence for this text"
            )
        files[name] = {
            "stale": stale,
            "kernels": [{"kernel": to_wire(kernel), "key": _key(source.document, kernel)} for kernel in source.kernels],
        }
    request = {
        "command": [*(f"{name}={value}" for name, value in wish.environment.items()), *wish.command],
        "folder": wish.folder,
        "launches": wish.launches,
        "program": Path(wish.command[0]).stem,
        "stem": Path(wish.sources[0].path).stem if len(wish.sources) == 1 else Path(wish.command[0]).stem,
        "files": files,
    }
    return request, notes


def _key(document: Document, kernel: Kernel) -> str:
    """The hash that a check of the kernel has, too: of its own string alone where it stands in a Python file."""
    text = unit(document, kernel.start).text
    return kernel_slice_key(device_slice(text).text, kernel, parse(text).kernels)


def _built(wish: Wish) -> float | None:
    """When the program was built; None for a script, which may build what it runs."""
    with contextlib.suppress(OSError):
        path = Path(wish.folder, wish.command[0])
        with open(path, "rb") as file:
            if file.read(4) == b"\x7fELF":
                return os.fstat(file.fileno()).st_mtime
    return None


def _environment(wish: Wish, folder: Path, injected: Path, cupti: Path) -> dict[str, str]:
    return {
        INJECTION: str(injected),
        "DICE_CAPTURE_CUPTI": str(cupti),
        "DICE_CAPTURE_FOLDER": str(folder),
        "DICE_CAPTURE_LAUNCHES": str(wish.launches),
        # Twice, since what was there after is recorded as well.
        "DICE_CAPTURE_LAUNCH_BYTES": str((wish.limit_mb << 20) // 4),
        "DICE_CAPTURE_WAIT_S": str(wish.wait_s),
        "DICE_CAPTURE_TRACE": "1" if wish.trace else "",
    }


def _report(wish: Wish, kept: Kept, code: int) -> CaptureReport:
    ids = {kernel.id for kernel in wish.sources[0].kernels}
    first = next(iter({count.file for count in kept.kernels}), "")
    kernels = {count.id: count.kept for count in kept.kernels if count.file == first and count.id in ids}
    return CaptureReport(
        kernels=kernels,
        nbytes=kept.nbytes,
        path="" if kept.path is None else str(kept.path),
        reason=None if kept.path is not None else _why_nothing(wish, kept, code),
        notes=kept.notes,
        kept=kept,
        exit_code=code,
    )


def _why_nothing(wish: Wish, kept: Kept, code: int) -> str:
    for problem in kept.problems:
        what, _, detail = problem.partition(": ")
        if what == "cupti":
            return f"CUPTI could not be loaded into the program: {detail}"
        if what == "refused":
            return (
                f"CUPTI refuses to tell of launches ({detail}): end other profilers, and check the driver's permissions"
            )
        return f"the driver of this machine is too old to record with ({detail})"
    name = Path(wish.sources[0].path).name if len(wish.sources) == 1 else "the files here"
    it = f"the program {_ended(code)}; it" if code else "the program"
    if not kept.started_cuda:
        return f"{it} started no CUDA in any process that may be recorded"
    if any(count.seen for count in kept.kernels):
        return f"{it} launched kernels of {name}, and none of the launches could be recorded"
    launched = ", ".join(kept.others[:5]) + (f" and {len(kept.others) - 5} more" if len(kept.others) > 5 else "")
    return f"{it} launched no kernel of {name}, only {launched}" if launched else f"{it} launched no kernel at all"


def _ended(code: int) -> str:
    import signal

    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _not_found(wish: Wish) -> str:
    program = wish.command[0]
    if not os.path.isdir(wish.folder):
        return f"the folder {wish.folder} is not there"
    if os.sep not in program and os.path.exists(os.path.join(wish.folder, program)):
        return f"{program} is not on PATH: write ./{program}"
    return f"{program} is not there: build it first, or name another"
