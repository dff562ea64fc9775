"""The recordings of a workspace: `.dice/captures`, one file for each run of a program, the oldest removed first.

`find` and its companions are what the worker reads launches with. How a recording comes here stands in `keeping`.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from dice_lsp.capture import recording
from dice_lsp.capture.names import demangled, parts_of
from dice_lsp.capture.recording import CaptureError, Log
from dice_lsp.records import CapturedLaunch, Kernel
from dice_lsp.workspace import FOLDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

CAPTURES = "captures"
SUFFIX = ".capture"
STORE_LIMIT_BYTES = 2 << 30
MARKS = (".git", ".hg", ".svn", "compile_commands.json")


@frozen
class RecordedParameter:
    """One argument as the launch was given it."""

    offset: int
    """In bytes, in the kernel's block of parameters."""
    size: int
    data: bytes


@frozen
class RecordedAllocation:
    """Memory that an argument leads into: the whole allocation of the program that the address lies in."""

    address: int
    """Where it began."""
    nbytes: int
    kind: str
    """`device`, `managed`, `host` (pinned) or `array`."""
    complete: bool
    """All of its bytes were recorded; see `pieces` where not."""
    holds_pointers: bool
    """A word of its first 8 KiB is an address of CUDA's memory: what that leads to was not recorded."""


@frozen
class RecordedSymbol:
    """A variable of device code in the kernel's module."""

    name: str
    """Mangled, as the driver finds it."""
    nbytes: int
    constant: bool
    """`__constant__`, else `__device__` or `__managed__`."""
    holds_pointers: bool


@frozen
class Recorded:
    """One launch that was recorded, without the contents of memory, which `before` and `after` read."""

    launch: CapturedLaunch
    kernel: str
    """Its full name in C++, with template arguments: `void ours::scale<float, 16>(float*, int)`."""
    symbol: str
    """Mangled."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    """Dynamic shared memory."""
    cluster: tuple[int, int, int]
    """Blocks of a thread block cluster, (1, 1, 1) without."""
    cooperative: bool
    parameters: tuple[RecordedParameter, ...]
    allocations: tuple[RecordedAllocation, ...]
    symbols: tuple[RecordedSymbol, ...]
    problems: tuple[str, ...]
    """What keeps it from being run again as it was, one sentence each; its grid, block and scalars hold all the same."""
    order: int
    """Which launch of this kernel it was in the program, from 1."""
    why: str
    """Why it was chosen: `first`, `larger`, `shape` or `repeat`."""
    finished: bool
    """What the memory held after the launch was recorded, too."""
    device: str
    """The GPU's name."""
    file: str = ""
    """The file that defines the kernel, as the project of the recording names it."""
    kernel_id: str = ""
    """Its id in that file."""


_MISSING = {
    "parameters": "the driver does not tell a kernel's parameters: CUDA 12.4 or newer does",
    "graph": "the launch is part of a CUDA graph, of which only the arguments are recorded",
    "capturing": "a stream was being captured into a CUDA graph at that time, so memory could not be read",
    "limit": "its memory is over the limit of the recording: give a larger --limit-mb",
    "busy": "the GPU did not become idle before the launch, so memory could not be read",
    "copy": "the driver refused to copy its memory",
    "disk": "the disk took no more",
}


def read_file(file: str) -> tuple[Recorded, ...]:
    """All launches of a recording, those of each kernel in the order of the program. Raises `CaptureError`."""
    return _launches(_log(file))


def find(path: str, kernel: Kernel, text_key: str) -> tuple[Recorded, ...]:
    """The launches of a kernel of the file `path` in its newest recording; none where there is none that can be read.

    `text_key` is `kernel_slice_key` of the present text: what was recorded of another one is `stale`.
    """
    for store in stores_of(path):
        name = Path(os.path.relpath(os.path.realpath(path), store.parent.parent)).as_posix()
        for file in files_of(store):
            try:
                run = recording.read_run(file)
                entry = _entry(run, name, kernel)
                if entry is None or not entry.get("launches"):
                    continue
                found = _launches(_log(str(file)))
            except CaptureError as error:
                log.warning("%s", error)
                continue
            stale = bool(entry.get("stale")) or entry.get("key") != text_key
            mine = [launch for launch in found if (launch.file, launch.kernel_id) == (name, entry["id"])]
            if mine:
                return tuple(
                    evolve(
                        launch,
                        launch=evolve(launch.launch, stale=stale),
                        problems=(*launch.problems, *_unknown_memory(launch, kernel)),
                    )
                    for launch in mine
                )
    return ()


def before(recorded: Recorded, index: int) -> "NDArray[np.uint8]":
    """The bytes of an allocation before the launch, 0 where they were not recorded. Raises `CaptureError`."""
    allocation = recorded.allocations[index]
    return _contents(recorded, "contents", index, pieces(recorded, index), allocation.nbytes, after=False)


def after(recorded: Recorded, index: int) -> "NDArray[np.uint8] | None":
    """The bytes of an allocation after the launch; None where it did not end. Raises `CaptureError`."""
    if not recorded.finished:
        return None
    allocation = recorded.allocations[index]
    return _contents(recorded, "contents", index, pieces(recorded, index), allocation.nbytes, after=True)


def symbol_before(recorded: Recorded, index: int) -> "NDArray[np.uint8]":
    """The bytes of a variable of device code before the launch. Raises `CaptureError`."""
    nbytes = recorded.symbols[index].nbytes
    return _contents(recorded, "symbol_contents", index, ((0, nbytes),), nbytes, after=False)


def symbol_after(recorded: Recorded, index: int) -> "NDArray[np.uint8] | None":
    """The bytes of a variable of device code after the launch; None where it did not end. Raises `CaptureError`."""
    if not recorded.finished:
        return None
    nbytes = recorded.symbols[index].nbytes
    return _contents(recorded, "symbol_contents", index, ((0, nbytes),), nbytes, after=True)


def pieces(recorded: Recorded, index: int) -> tuple[tuple[int, int], ...]:
    """Start and length of each part of an allocation that was recorded. Raises `CaptureError`."""
    launch = _launch(recorded.launch)
    found = _pairs(launch["allocations"][index].get("pieces"))
    nbytes = recorded.allocations[index].nbytes
    if any(start < 0 or length < 0 or start + length > nbytes for start, length in found):
        raise CaptureError(f"{recorded.launch.path} is damaged: a part lies outside of its memory")
    return found


def matches(recorded: Recorded, kernel: Kernel) -> bool:
    """Whether a recorded launch may be one of this kernel: its name, template or not, and the number of parameters."""
    names, templated = parts_of(recorded.symbol)
    return (
        names[-1] == kernel.name
        and (len(names) == 1 or tuple(kernel.qualified_name.split("::")[-len(names) :]) == names)
        and templated == bool(kernel.template)
        and len(recorded.parameters) == len(kernel.parameters)
    )


def listing(path: str) -> Sequence[tuple[str, str]]:
    """The recordings that `ref captured "NAME"` in the file `path` may name, newest first, with a line about each."""
    found = []
    for store in stores_of(path):
        for file in files_of(store):
            with contextlib.suppress(CaptureError):
                found.append((file.name, about(recording.read_run(file))))
    return found


def about(run: Mapping[str, Any]) -> str:
    """One line about a run: when, the command, and how many launches of which kernels."""
    kernels = [
        f"{kernel['id']} {kernel['launches']}"
        for file in _mappings(run.get("files"))
        for kernel in _mappings(file.get("kernels"))
        if isinstance(kernel.get("id"), str) and kernel.get("launches")
    ]
    command = " ".join(word for word in run.get("command", ()) if isinstance(word, str))
    shown = "".join(letter if letter.isprintable() else " " for letter in f"{run.get('when', '')}  {command}")
    return f"{shown[:120]}  ({', '.join(kernels[:8]) or 'no launch'})"


def resolve(name: str, document_path: str) -> str | None:
    """The file that `ref captured "NAME"` means: of a store of the document's folders, else beside the document.

    Never one outside of the document's project.
    """
    for store in stores_of(document_path):
        if os.sep not in name and (store / name).is_file() and not (store / name).is_symlink():
            return str(store / name)
    folder = Path(os.path.realpath(document_path)).parent
    beside = Path(os.path.realpath(folder / name))
    return str(beside) if beside.is_file() and beside.is_relative_to(project_of(folder)) else None


# Folders


def project_of(folder: Path) -> Path:
    """The folder whose `.dice` holds the recordings: the nearest with one, else of version control, else the folder."""
    above = (folder, *folder.parents)
    for candidate in above:
        if (candidate / FOLDER).is_dir() and candidate != Path(candidate.anchor):
            return candidate
    for candidate in above:
        if candidate != Path(candidate.anchor) and any((candidate / mark).exists() for mark in MARKS):
            return candidate
    return folder


def stores_of(path: str) -> list[Path]:
    """The folders of recordings above a file, the nearest first."""
    folder = Path(os.path.realpath(path)).parent
    found = []
    for candidate in (folder, *folder.parents):
        store = candidate / FOLDER / CAPTURES
        if store.is_dir() and Path(os.path.realpath(store)) == store:
            found.append(store)
    return found


def files_of(store: Path) -> list[Path]:
    """The finished recordings of a store, newest first: their names begin with the time."""
    try:
        names = sorted((entry.name for entry in os.scandir(store) if entry.name.endswith(SUFFIX)), reverse=True)
    except OSError:
        return []
    return [store / name for name in names]


def prepare(project: Path) -> Path:
    """The store of a project, made if it is not there. Raises `CaptureError`, also for one that leads elsewhere."""
    store = project / FOLDER / CAPTURES
    if Path(os.path.realpath(store)) != Path(os.path.realpath(project)) / FOLDER / CAPTURES:
        raise CaptureError(
            f"{store} leads out of {project}, so nothing is written there: replace the link with a folder"
        )
    try:
        store.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # Exclusive, so that a link of this name is never followed.
            descriptor = os.open(store.parent / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write("*\n")
    except OSError as error:
        raise CaptureError(f"{store} cannot be written: {(error.strerror or str(error)).lower()}") from error
    return store


def remove_oldest(store: Path, limit_bytes: int = STORE_LIMIT_BYTES) -> int:
    """Remove the oldest recordings beyond the limit, never the newest. Returns how many that were."""
    total, removed = 0, 0
    for at, file in enumerate(files_of(store)):
        with contextlib.suppress(OSError):
            total += file.lstat().st_size
            if at and total > limit_bytes:
                file.unlink()
                removed += 1
    return removed


def clear(store: Path) -> int:
    """Remove every recording of a store. Returns how many that were."""
    removed = 0
    for file in files_of(store):
        with contextlib.suppress(OSError):
            file.unlink()
            removed += 1
    return removed


# Reading


def _log(path: str) -> Log:
    try:
        about_file = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    return _cached_log(path, about_file.st_mtime_ns, about_file.st_size, about_file.st_ino)


@lru_cache(maxsize=8)
def _cached_log(path: str, modified_ns: int, nbytes: int, inode: int) -> Log:
    return recording.read_log(Path(path))


def _launch(captured: CapturedLaunch) -> dict[str, Any]:
    launches = _log(captured.path).launches
    if not 0 <= captured.index < len(launches):
        raise CaptureError(f"{captured.path} has no launch {captured.index}")
    launch = launches[captured.index]
    if captured.digest and _digest(launch) != captured.digest:
        raise CaptureError(f"{captured.path} holds another launch {captured.index} than it did")
    return launch


def _digest(launch: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(launch, sort_keys=True).encode()).hexdigest()[:32]


def _launches(log_of: Log) -> tuple[Recorded, ...]:
    found = []
    for index, launch in enumerate(log_of.launches):
        try:
            symbol = launch.get("symbol")
            if symbol is None:
                symbol = log_of.kernels[launch["kernel"]]["symbol"]
            captured = CapturedLaunch(str(log_of.path), index, _digest(launch))
            found.append(_recorded(captured, launch, str(symbol)))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise CaptureError(f"{log_of.path} is damaged: launch {index} cannot be read") from error
    return tuple(found)


def _recorded(captured: CapturedLaunch, launch: Mapping[str, Any], symbol: str) -> Recorded:
    ended = launch.get("after") or {}
    finished = bool(ended) and ended.get("status") == 0 and "contents" in ended
    missing = str(launch.get("missing") or "")
    allocations = tuple(
        RecordedAllocation(
            int(of["address"]), int(of["bytes"]), str(of["kind"]), bool(of["complete"]), bool(of["pointers"])
        )
        for of in launch["allocations"]
    )
    problems = []
    if missing:
        status = launch.get("missing_status")
        problems.append(
            _MISSING.get(missing, missing) + (f" (CUDA error {status})" if missing == "copy" and status else "")
        )
    elif not ended:
        problems.append("the program ended before the launch did")
    elif not ended.get("launched", True):
        problems.append(f"the launch was refused with CUDA error {ended.get('status')}")
    elif ended.get("status") == 600:
        problems.append("the kernel did not end in time: it may wait for the host or for another kernel")
    elif ended.get("status"):
        problems.append(f"the kernel failed with CUDA error {ended.get('status')}")
    elif not finished:
        problems.append("what it left could not be stored")
    if not missing and not all(of.complete for of in allocations):
        problems.append(
            "its memory is larger than the limit of a launch, so only a part was recorded: give a larger --limit-mb"
        )
    return Recorded(
        launch=captured,
        kernel=demangled(symbol),
        symbol=symbol,
        grid=_three(launch["grid"]),
        block=_three(launch["block"]),
        smem_bytes=int(launch["smem_bytes"]),
        cluster=_three(launch["cluster"]),
        cooperative=bool(launch["cooperative"]),
        parameters=tuple(
            RecordedParameter(int(of["offset"]), int(of["size"]), bytes.fromhex(of["data"]))
            for of in launch["parameters"]
        ),
        allocations=allocations,
        symbols=tuple(
            RecordedSymbol(str(of["name"]), int(of["bytes"]), bool(of["constant"]), bool(of["pointers"]))
            for of in launch["symbols"]
        ),
        problems=tuple(problems),
        order=int(launch["order"]),
        why=str(launch["why"]),
        finished=finished and not missing,
        device=str(launch["device"]),
        file=str(launch.get("file", "")),
        kernel_id=str(launch.get("id", "")),
    )


def _unknown_memory(recorded: Recorded, kernel: Kernel) -> list[str]:
    """What the kernel's own types say that the driver could not: pointers that lead nowhere, and pointers in memory."""
    problems = []
    if recorded.parameters and len(recorded.parameters) != len(kernel.parameters):
        return [
            f"it was recorded with {len(recorded.parameters)} parameters, and the kernel has {len(kernel.parameters)}"
        ]
    for parameter, given in zip(kernel.parameters, recorded.parameters, strict=False):
        if not parameter.pointer or given.size != 8:
            continue
        address = int.from_bytes(given.data, "little")
        inside = [of for of in recorded.allocations if 0 <= address - of.address < of.nbytes]
        if address and not inside:
            problems.append(f"`{parameter.name}` leads to memory that CUDA does not know, so it was not recorded")
        elif inside and inside[0].holds_pointers and parameter.indirections > 1:
            problems.append(f"`{parameter.name}` leads to pointers, and what those lead to was not recorded")
    return problems


def _contents(
    recorded: Recorded, name: str, index: int, parts: Sequence[tuple[int, int]], nbytes: int, *, after: bool
) -> "NDArray[np.uint8]":
    import numpy as np

    launch = _launch(recorded.launch)
    path = recorded.launch.path
    if not 0 <= nbytes <= recording.MAX_BUFFER_BYTES:
        raise CaptureError(f"{path} has a buffer of {nbytes >> 20} MiB, which is not read")
    holder = (launch.get("after") or {}) if after else launch
    try:
        given = holder[name][index]
        digests = [given] if name == "symbol_contents" else given
        if len(digests) != len(parts):
            raise CaptureError(f"{path} is damaged: parts of a buffer are missing")
        data = np.zeros(nbytes, np.uint8)
        with recording.opened(Path(path)) as file:
            log_of = _log(path)
            for (start, length), chunks in zip(parts, digests, strict=True):
                at = start
                for digest in chunks:
                    chunk = recording.chunk_bytes(file, log_of, str(digest))
                    if at + len(chunk) > start + length:
                        raise CaptureError(f"{path} is damaged: a buffer is longer than it was")
                    data[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
                    at += len(chunk)
                if at != start + length:
                    raise CaptureError(f"{path} is damaged: a buffer is shorter than it was")
    except (KeyError, IndexError, TypeError) as error:
        raise CaptureError(f"{path} does not hold what the memory of this launch was") from error
    return data


def _entry(run: Mapping[str, Any], name: str, kernel: Kernel) -> Mapping[str, Any] | None:
    files = run.get("files")
    file = files.get(name) if isinstance(files, dict) else None
    kernels = _mappings(file.get("kernels")) if isinstance(file, dict) else []
    same = [entry for entry in kernels if entry.get("id") == kernel.id] or [
        entry
        for entry in kernels
        if entry.get("qualified_name") == kernel.qualified_name and entry.get("parameters") == len(kernel.parameters)
    ]
    return same[0] if len(same) == 1 and isinstance(same[0].get("id"), str) else None


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value.values() if isinstance(item, dict)] if isinstance(value, dict) else []


def _three(value: Any) -> tuple[int, int, int]:
    x, y, z = value
    return int(x), int(y), int(z)


def _pairs(value: Any) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((int(start), int(length)) for start, length in value)
    except (TypeError, ValueError, OverflowError) as error:
        raise CaptureError("a recording is damaged: its parts cannot be read") from error
