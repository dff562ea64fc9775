"""What a run of a program leaves behind, made into one recording of the workspace's store.

While the program runs, its processes write logs into a folder of their own. Whoever started it holds a lock on that
folder; when he is gone without having kept them, the next run does.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import Factory, define, evolve, frozen

from dice_lsp.capture import recording
from dice_lsp.capture.names import demangled, kernels_called
from dice_lsp.capture.recording import CaptureError, Counters, Counts, Log
from dice_lsp.capture.store import SUFFIX, remove_oldest
from dice_lsp.records import Kernel, from_wire

log = logging.getLogger(__name__)

_RUNNING = ".running-"
_HELD = ".held"
_REQUEST = "request.json"
YOUNG_S = 60.0
"""A folder this young may have an owner who has not locked it yet."""


class Running:
    """The folder that a running program records into, held while this process lives. Raises `CaptureError`."""

    def __init__(
        self, store: Path, request: Mapping[str, Any], limit_bytes: int, names: Mapping[str, Iterable[str]]
    ) -> None:
        """`names` are files for the library in the program: names that are separated by commas."""
        self.store = store
        self.request = dict(request)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=_RUNNING, dir=store))
            self._held = open(self.folder / _HELD, "wb")
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.folder / _REQUEST).write_text(json.dumps(self.request), encoding="utf-8")
            for name, listed in names.items():
                (self.folder / name).write_text(",".join(listed), encoding="utf-8")
            (self.folder / "budget").write_bytes(limit_bytes.to_bytes(8, "little") + bytes(8))
        except OSError as error:
            raise CaptureError(f"{store} cannot be written: {(error.strerror or str(error)).lower()}") from error

    def keep(self, ended: Mapping[str, Any]) -> "Kept":
        """Make one recording of what was recorded, and remove the folder. Raises `CaptureError`."""
        try:
            return keep(self.store, self.folder, self.request, ended)
        finally:
            self.close()

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._held.close()


def recover(store: Path, young_s: float = YOUNG_S) -> list["Kept"]:
    """Keep what was recorded by runs whose `dice-lsp` was killed before it could."""
    found = []
    try:
        folders = [Path(entry.path) for entry in os.scandir(store) if entry.name.startswith(_RUNNING)]
    except OSError:
        return []
    for folder in folders:
        try:
            if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
                continue
            with open(folder / _HELD, "rb") as held:
                if time.time() - os.fstat(held.fileno()).st_mtime < young_s:
                    continue
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    request = json.loads((folder / _REQUEST).read_text(encoding="utf-8"))
                    kept = keep(store, folder, request, {"notes": ["dice-lsp ended before the program did"]})
                    found += [kept] if kept.path is not None else []
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue  # it goes on
        except Exception as error:
            # Its maker may have been killed at any moment, so anything may be half there.
            log.warning("what a run left in %s is lost: %s", folder, error)
    return found


@frozen
class KernelCount:
    """What became of the launches of one kernel of a file."""

    file: str
    id: str
    seen: int = 0
    kept: int = 0
    """Launches in the recording, `bare` ones included."""
    bare: int = 0
    """Those without the contents of memory."""
    over_limit: int = 0
    in_graph: int = 0
    unfinished: int = 0
    failed: int = 0

    def with_counts(self, counts: Counts) -> "KernelCount":
        """With what one process counted."""
        return evolve(
            self,
            seen=self.seen + counts.seen,
            over_limit=self.over_limit + counts.over_limit,
            in_graph=self.in_graph + counts.in_graph,
            unfinished=self.unfinished + counts.unfinished,
            failed=self.failed + counts.failed,
        )


@frozen
class Kept:
    """What a run left behind."""

    path: Path | None
    """The recording; None when no launch was recorded."""
    nbytes: int
    kernels: tuple[KernelCount, ...]
    others: tuple[str, ...]
    """Kernels that were launched and are none of the files'."""
    started_cuda: bool
    """Some process of the program initialised CUDA."""
    problems: tuple[str, ...]
    """What kept the library from recording, as it says itself."""
    device: str
    notes: tuple[str, ...] = ()


Key = tuple[str, str]
"""A file and the id of a kernel in it."""
Launches = list[tuple[Log, dict[str, Any]]]


@define
class _Found:
    """What the logs of a run say, put together."""

    wanted: Mapping[str, list[tuple[Kernel, str]]]
    """File -> its kernels with the keys of their texts."""
    program: str
    totals: dict[Key, KernelCount]
    launches: dict[Key, Launches]
    others: dict[str, None] = Factory(dict)
    problems: dict[str, None] = Factory(dict)
    notes: dict[str, None] = Factory(dict)
    processes: int = 0
    graph_launches: int = 0
    other_launches: int = 0

    def add(self, found: Log, counters: Counters | None) -> None:
        """Take in what one process recorded."""
        self.processes += 1
        for process in found.processes:
            if process.get("problem"):
                self.problems[f"{process['problem']}: {process.get('detail', '')}".rstrip(": ")] = None
        if counters is not None:
            self.graph_launches += counters.graph_launches
            self.other_launches += counters.other_launches
            if counters.errno:
                why = "no space is left" if counters.errno == errno.ENOSPC else os.strerror(counters.errno).lower()
                self.notes[f"the recording stopped early: {why}"] = None
        called = Counter(
            f"{trace.get('function')} {trace.get('domain')}/{trace.get('number')}" for trace in found.traces
        )
        if called:
            self.notes["callbacks: " + ", ".join(f"{name} ×{number}" for name, number in called.most_common())] = None
        parameters = {launch.get("kernel"): len(launch.get("parameters", ())) for launch in found.launches}
        for number, about in found.kernels.items():
            symbol = str(about.get("symbol", ""))
            key = self._kernel_of(symbol, parameters.get(number, -1))
            if key is None:
                continue
            if counters is not None and number < len(counters.kernels):
                self.totals[key] = self.totals[key].with_counts(counters.kernels[number])
            self.launches[key] += [
                (found, {**launch, "file": key[0], "id": key[1], "symbol": symbol})
                for launch in found.launches
                if launch.get("kernel") == number
            ]

    def _kernel_of(self, symbol: str, parameters: int) -> Key | None:
        """The kernel of a file that a mangled name means; None, and a note, where it is none or may be several."""
        candidates = [
            (file, kernel.id)
            for file, of in self.wanted.items()
            for kernel in kernels_called(symbol, parameters, [kernel for kernel, _ in of])
        ]
        if len(candidates) > 1:
            # Several files define a kernel of that name: the program is made of the one that it is called after.
            named = [candidate for candidate in candidates if Path(candidate[0]).stem == self.program]
            candidates = named if len(named) == 1 else candidates
        if len(candidates) == 1:
            return candidates[0]
        self.others[demangled(symbol)] = None
        if candidates:
            names = " and ".join(f"{name} of {file}" for file, name in candidates[:3])
            self.notes[f"launches of {demangled(symbol)} are left out, since they may be of {names}"] = None
        return None


def keep(store: Path, folder: Path, request: Mapping[str, Any], ended: Mapping[str, Any]) -> Kept:
    """Make one recording of the logs in `folder`. Raises `CaptureError` where it cannot be written."""
    wanted = {
        file: [(from_wire(of_kernel["kernel"], Kernel), str(of_kernel["key"])) for of_kernel in of["kernels"]]
        for file, of in request["files"].items()
    }
    keys = [(file, kernel.id) for file, of in wanted.items() for kernel, _ in of]
    found = _Found(
        wanted, str(request.get("program", "")), {key: KernelCount(*key) for key in keys}, {key: [] for key in keys},
        notes=dict.fromkeys(ended.get("notes", ())),
    )  # fmt: skip
    for path in sorted(folder.glob("*.log")):
        try:
            found.add(recording.read_log(path), recording.read_counters(path.with_suffix(".counts")))
        except CaptureError as error:
            found.notes[str(error)] = None
    notes = [*found.notes]
    if found.graph_launches:
        notes.append(
            f"{found.graph_launches} launches of CUDA graphs were not recorded: the kernels within are only known as they"
            " were captured"
        )
    if found.other_launches:
        notes.append(
            f"{found.other_launches} launches by functions that cannot be read (on several devices at once, or of CUDA 3)"
            " were not recorded"
        )
    selected: Launches = []
    device = ""
    for key, launches in found.launches.items():
        best = select([launch for _, launch in launches], int(request["launches"]))
        selected += [launches[at] for at in best]
        bare = sum(bool(launches[at][1].get("missing")) for at in best)
        total = found.totals[key]
        found.totals[key] = evolve(total, kept=len(best), bare=bare, seen=max(total.seen, len(launches)))
        device = next((str(launch["device"]) for _, launch in launches if launch.get("device")), device)
    path_kept, nbytes = None, 0
    if selected:
        run = _about(request, ended, wanted, found.totals, device, notes)
        path_kept = _write(store, str(request.get("stem") or "run"), run, selected)
        nbytes = path_kept.stat().st_size
        remove_oldest(store)
    return Kept(
        path_kept, nbytes, tuple(found.totals.values()), tuple(found.others), bool(found.processes), tuple(found.problems),
        device, tuple(notes),
    )  # fmt: skip


def _about(
    request: Mapping[str, Any], ended: Mapping[str, Any], wanted: Mapping[str, list[tuple[Kernel, str]]],
    totals: Mapping[Key, KernelCount], device: str, notes: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """The first record of a recording."""

    def entry(file: str, kernel: Kernel, key: str) -> dict[str, Any]:
        return {
            "id": kernel.id,
            "qualified_name": kernel.qualified_name,
            "parameters": len(kernel.parameters),
            "key": key,
            "stale": bool(request["files"][file].get("stale")),
            "seen": totals[file, kernel.id].seen,
            "launches": totals[file, kernel.id].kept,
        }

    return {
        "version": 1,
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": request.get("command"),
        "folder": request.get("folder"),
        "exit_code": ended.get("exit_code"),
        "device": device,
        "files": {
            file: {"kernels": {kernel.id: entry(file, kernel, key) for kernel, key in of}}
            for file, of in wanted.items()
        },
        "notes": list(notes),
    }


def select(launches: Sequence[Mapping[str, Any]], most: int) -> list[int]:
    """Which of a kernel's launches are kept: the first, the largest, one of each shape, and others spread evenly."""
    if len(launches) <= most:
        return list(range(len(launches)))

    def threads(at: int) -> int:
        product = 1
        for count in (*launches[at].get("grid", ()), *launches[at].get("block", ())):
            product *= int(count)
        return product

    # What has contents, and an end, is worth more than what has not.
    good = [at for at, launch in enumerate(launches) if not launch.get("missing") and launch.get("after")]
    ranked: dict[int, None] = {}
    for group in (good, list(range(len(launches)))):
        if not group:
            continue
        ranked[group[0]] = None
        ranked[max(group, key=threads)] = None
        shapes: dict[str, int] = {}
        for at in group:
            shapes.setdefault(_shape(launches[at]), at)
        rest = [*_spread(list(shapes.values()), most), *_spread(group, most)]
        for at in rest:
            ranked[at] = None
    return sorted(list(ranked)[:most])


def _shape(launch: Mapping[str, Any]) -> str:
    """Grid, block and scalars; where memory lies is no shape, so words as large as an address are left out."""
    words = [
        word
        for parameter in launch.get("parameters", ())
        for at in range(0, len(parameter["data"]), 16)
        if (word := int.from_bytes(bytes.fromhex(parameter["data"][at : at + 16]), "little")) < 1 << 32
    ]
    return json.dumps([launch.get("grid"), launch.get("block"), launch.get("smem_bytes"), words])


def _spread(items: list[int], most: int) -> list[int]:
    """Up to `most` items at even distances, the ends included."""
    if len(items) <= most or most < 2:
        return items[:most]
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


def _write(store: Path, stem: str, run: Mapping[str, Any], selected: Launches) -> Path:
    # By these names recordings are ordered, so two of one second must differ before what follows.
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3]
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in stem)[:40] or "run"
    name, number = f"{when}-{stem}{SUFFIX}", 1
    while (store / name).exists():
        number += 1
        name = f"{when}-{stem}-{number}{SUFFIX}"
    unfinished = store / f"{name}.part"
    try:
        # The program's data are nobody else's.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            writer = recording.Writer(file, run)
            with contextlib.ExitStack() as stack:
                sources = {log.path: stack.enter_context(recording.opened(log.path)) for log, _ in selected}
                for log_of, launch in selected:
                    writer.launch(launch, log_of, sources[log_of.path])
        os.replace(unfinished, store / name)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise CaptureError(f"{store} cannot be written: {(error.strerror or str(error)).lower()}") from error
    return store / name
