"""Judges every kernel of `tests/hostile` and `tests/honest` and prints what came out.

`python -m tests.hostile_table [--backend host|auto|pycuda|cuda-core] [--jobs N] [--json FILE] [NAME...]` prints a line per file and
the confusion table; exit code 1 when a verdict is not the expected one. On a GPU the kernels go through the worker as a
user's do, and are timed where the trick only shows then. An honest file must be verified; a hostile one says in the
comments it begins with what it must be refused with:

    // expect: unsafe race | wrong       how the verdict begins, any one of them
    // on a GPU: unsafe non_deterministic the same where a GPU answers otherwise
    // host cannot: REASON               the host cannot see it: there, and only there, nothing is refused
    // GPU cannot: REASON                the same of a GPU
    // timed: REASON                     on a GPU it is timed too, and what the timing says counts
    // kind: WORDS                       the trick, for the table
    // check: NAME                       the check that alone finds it: without that check the host does not refuse it
"""

import argparse
import atexit
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import attrs
from attrs import frozen

from dice_lsp import lease, process
from dice_lsp.records import (
    Build,
    Compiled,
    Judged,
    JudgeJob,
    NotTimed,
    TimingResult,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
    from_wire,
    kind_of,
    to_wire,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.__main__ import Worker
from dice_lsp.worker.compile import CompileJob, Compiler, build_keys
from dice_lsp.worker.device import GpuBackend
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Backend, Source
from dice_lsp.worker.verify import verify

HERE = Path(__file__).parent
HOSTILE = tuple(sorted((HERE / "hostile").glob("*.cu")))
HONEST = tuple(sorted((HERE / "honest").glob("*.cu")))
NOT_SEEN = ("verified", "unverified")
"""What a back end says of a trick that it cannot see: it does not refuse, and it does not refuse for another reason."""
_LABEL = re.compile(r"// (expect|on a GPU|host cannot|GPU cannot|timed|kind|check): (.+)")


@frozen
class Expectation:
    """What the comments at the beginning of a file say."""

    words: tuple[str, ...]
    on_gpu: tuple[str, ...]
    host_cannot: str
    gpu_cannot: str
    timed: bool
    trick: str
    check: str

    def on(self, backend: str) -> tuple[str, ...]:
        """How the verdict begins on a back end, any one of them."""
        if backend == "host":
            return NOT_SEEN if self.host_cannot else self.words
        return NOT_SEEN if self.gpu_cannot else self.on_gpu

    @property
    def kind(self) -> str:
        """Class, hazard and mechanism: files of one kind are variations of each other."""
        return f"{self.words[0]}: {self.trick}"


def expectations(path: Path) -> Expectation:
    said: dict[str, str] = {}
    if path.parent.name == "honest":
        return Expectation(("verified",), ("verified",), "", "", False, "", "")
    for line in path.read_text().splitlines():
        if not line.startswith("//"):
            break
        if (match := _LABEL.fullmatch(line)) is not None:
            said[match[1]] = match[2].strip()
    assert "expect" in said, f"{path} does not say what is expected"
    words = _alternatives(said["expect"])
    return Expectation(
        words,
        _alternatives(said["on a GPU"]) if "on a GPU" in said else words,
        said.get("host cannot", ""),
        said.get("GPU cannot", ""),
        "timed" in said,
        said.get("kind", path.stem.replace("_", " ")),
        said.get("check", ""),
    )


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


@frozen
class Row:
    """One judged file."""

    path: Path
    backend: str
    """`host`, or the library that ran it on a GPU."""
    device: str
    expectation: Expectation
    verdict: Verdict | None
    build: Build
    words: str
    """The verdict in one line; what the timing says when it takes back what the verdict grants."""
    compile_s: float
    verify_s: float

    @property
    def fine(self) -> bool:
        return any(self.words.startswith(expected) for expected in self.expectation.on(self.backend))

    @property
    def given(self) -> str:
        """The kind of the verdict: `wrong`, `unsafe race`, `verified`."""
        found = re.match(r"(?:unsafe|cheating) \w+|[\w ]+?(?=:|$)|\w+", self.words)
        return found[0] if found else self.words

    @property
    def unseen(self) -> str:
        """Why this back end cannot see it; empty where it can."""
        return self.expectation.host_cannot if self.backend == "host" else self.expectation.gpu_cannot

    @property
    def refused(self) -> bool:
        return not self.words.startswith("verified")


def in_words(verdict: Verdict, timing: TimingResult | None = None) -> str:
    """`unsafe race: y[0] depends ... (n=33)`."""
    kind = kind_of(type(verdict))
    match verdict:
        case Unsafe(hazard, where, case):
            return f"{kind} {hazard}: {where} ({case})"
        case Wrong(buffer, index, got, expected, case, wrong, total):
            return f"{kind}: {buffer}[{index}] is {got}, expected {expected}; {wrong} of {total} ({case})"
        case Verified(cases, max_error, _, reference, checks):
            if isinstance(timing, NotTimed):
                return f"not timed: {timing.reason}"
            notes = f" [{'; '.join(verdict.notes)}]" if verdict.notes else ""
            return f"{kind}: {cases} cases, error {max_error:.2g} of the tolerance, {reference}; {', '.join(checks)}{notes}"
        case Unverified(reason, checks):
            return f"{kind} {reason}" + (f" [{', '.join(checks)}]" if checks else "")
    return f"{kind} {verdict.trick}: {verdict.where}"


class Judge(Protocol):
    """Judges files on one back end."""

    backend: str
    device: str

    def __call__(self, path: Path) -> Row: ...


def judge(
    path: Path,
    compiler: Compiler,
    host: HostBackend,
    *,
    baseline: str | None = None,
    without: Collection[str] = (),
    gpu: GpuBackend | None = None,
) -> Row:
    """The last kernel of a file through the real pieces: parse, launch spec, compile, verify; on the host if on no GPU."""
    backend: Backend = gpu or host
    text = path.read_text()
    expected = expectations(path)
    model = parse(text)
    kernel = model.kernels[-1]
    spec = launch_spec(text, kernel, model)
    started = time.monotonic()
    job = CompileJob(text, str(path), (kernel,), templates={kernel.name: spec.template})
    if gpu is not None:
        job = attrs.evolve(job, arch=gpu.arch)
    build = compiler.compile(job)[build_keys((kernel,))[0]]
    compiled = time.monotonic()
    if not isinstance(build, Compiled):
        words = f"{kind_of(type(build))}: {build}"
        return Row(path, backend.kind, backend.name, expected, None, build, words, compiled - started, 0.0)
    source = Source(compiler.program(job).device_text, str(path), kernel, spec.template, build)
    judged = JudgeJob(text, str(path), kernel, spec)
    baseline_source = None
    if baseline is not None:
        accepted = parse(baseline).kernels[-1]
        old = CompileJob(baseline, str(path), (accepted,), templates={accepted.name: spec.template})
        old_build = compiler.compile(attrs.evolve(old, arch=job.arch))[build_keys((accepted,))[0]]
        assert isinstance(old_build, Compiled), old_build
        baseline_source = Source(compiler.program(old).device_text, str(path), accepted, spec.template, old_build)
        judged = attrs.evolve(judged, baseline_text=baseline, baseline_kernel=accepted)
    more: Mapping[str, Any] = {"without": frozenset(without)} if without else {}
    verdict = verify(judged, source, backend, host, baseline_source=baseline_source, **more)
    done = time.monotonic()
    return Row(
        path,
        backend.kind,
        backend.name,
        expected,
        verdict,
        build,
        in_words(verdict),
        compiled - started,
        done - compiled,
    )


def hangs(path: Path) -> bool:
    """It ends only because it is ended, and what runs beside it may then be late."""
    said = expectations(path)
    return any("timeout" in words or "deadlock" in words for words in (*said.words, *said.on_gpu))


_own: "ExitStack | None" = None
_judge_on: "Judge | None" = None


def _begin(backend: str) -> None:
    """A process of `judging` opens its own judge, and its own leases: they keep timings apart, and here none is taken."""
    global _own, _judge_on
    _own = ExitStack()
    os.environ[lease.VARIABLE] = _own.enter_context(tempfile.TemporaryDirectory())
    _judge_on = _own.enter_context(opened(backend))
    atexit.register(_own.close)


def judging(backend: str, jobs: int) -> ProcessPoolExecutor:
    """Processes that judge on a back end, each with its own, for `judged_there`."""
    # Each would start a thread per core for its matrices, and all of them together wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (backend,))


def judged_there(path: Path) -> Row:
    """A file's row, in a process of `judging`."""
    assert _judge_on is not None
    return _judge_on(path)


def judged(paths: Sequence[Path], backend: str, jobs: int = 1) -> Iterator[Row]:
    """The rows of the files, as they come: most by `jobs` processes, then those that hang, then alone those that are timed."""
    timed = [path for path in paths if jobs == 1 or expectations(path).timed]
    hanging = [path for path in paths if hangs(path) and path not in timed]
    for beside in ([path for path in paths if path not in {*timed, *hanging}], hanging):
        if beside:
            with judging(backend, min(jobs, len(beside))) as pool:
                yield from pool.map(judged_there, beside)
    if timed:
        with opened(backend) as judge_on:
            yield from map(judge_on, timed)


class HostJudge:
    backend, device = "host", "host"

    def __init__(self, cache_dir: Path) -> None:
        self._compiler, self._host = Compiler(cache_dir=cache_dir), HostBackend()

    def __call__(self, path: Path) -> Row:
        return judge(path, self._compiler, self._host)

    def close(self) -> None:
        self._host.close()
        self._compiler.close()


class WorkerJudge:
    """A worker with a GPU, asked as its parent asks it. One that is lent is left open."""

    def __init__(self, backend: str, worker: Worker | None = None) -> None:
        self._worker, self._lent = worker or Worker(), worker is not None
        self._settings = {"backend": backend}
        here = self._worker.hello({"settings": self._settings}, self._call())
        self.backend, self.device = str(here["backend"]), str(here["device"])
        if self.backend == "host":
            self.close()
            raise SystemExit(f"no GPU to judge on: {here['no_device'] or 'none was found'}")

    def __call__(self, path: Path) -> Row:
        text = path.read_text()
        expected = expectations(path)
        model = parse(text)
        kernel = model.kernels[-1]
        job = JudgeJob(text, str(path), kernel, launch_spec(text, kernel, model), benchmark=expected.timed)
        started = time.monotonic()
        answer = self._worker.judge({"settings": self._settings, "job": to_wire(job)}, self._call())
        judged = from_wire(answer, Judged)
        took_s = time.monotonic() - started
        timing = judged.timing if expected.timed else None
        words = in_words(judged.verdict, timing)
        if not isinstance(judged.build, Compiled):
            words = f"{kind_of(type(judged.build))}: {judged.build}"
        return Row(path, self.backend, self.device, expected, judged.verdict, judged.build, words, 0.0, took_s)

    def close(self) -> None:
        if not self._lent:
            self._worker.close()

    @staticmethod
    def _call() -> process.Job:
        return process.Job(1, lambda message: None)


@contextmanager
def opened(backend: str) -> Iterator[Judge]:
    """A judge on `host`, or on a GPU through `auto`, `pycuda` or `cuda-core`. Raises `SystemExit` where there is no GPU."""
    with tempfile.TemporaryDirectory() as cache:
        judge_on = HostJudge(Path(cache)) if backend == "host" else WorkerJudge(backend)
        try:
            yield judge_on
        finally:
            judge_on.close()


def kinds(paths: Sequence[Path]) -> set[str]:
    """Class, hazard and mechanism of the hostile ones among these files."""
    return {expectations(path).kind for path in paths if path.parent.name == "hostile"}


def confusion(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    """Expected kind, given kind, and how many files: every cell of the table that is not empty, the diagonal first."""
    cells = Counter((_expected(row), row.given) for row in rows)
    return [
        (*cell, count) for cell, count in sorted(cells.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    ]


def _expected(row: Row) -> str:
    return f"cannot be seen on {row.backend}" if row.unseen else row.expectation.on(row.backend)[0]


def as_text(cells: Sequence[tuple[str, str, int]]) -> str:
    """A confusion table of many kinds is mostly empty, so a line holds what was expected and all that was given."""
    given: dict[str, list[str]] = {}
    for expected, kind, count in cells:
        given.setdefault(expected, []).append(f"{kind} {count}")
    width = max(map(len, given), default=0)
    return "\n".join([f"{'expected':{width}}  given", *(f"{e:{width}}  {', '.join(g)}" for e, g in given.items())])


def totals(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Verified, refused and unseen, of the honest and of the hostile files."""
    table = [("", "verified", "refused", "cannot be seen here", "seconds")]
    for folder in ("honest", "hostile"):
        mine = [row for row in rows if row.path.parent.name == folder]
        seen = [row for row in mine if not row.unseen]
        table.append((
            folder, str(sum(not row.refused for row in seen)), str(sum(row.refused for row in seen)),
            str(len(mine) - len(seen)), f"{sum(row.compile_s + row.verify_s for row in mine):.1f}",
        ))  # fmt: skip
    return table


def columns(table: Sequence[tuple[str, ...]]) -> str:
    """A table as text, the first column to the left and the others to the right."""
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in table
    )


def as_json(row: Row) -> dict[str, object]:
    return {
        "file": f"{row.path.parent.name}/{row.path.name}", "backend": row.backend, "kind": row.expectation.kind,
        "expected": row.expectation.on(row.backend), "given": row.given, "words": row.words, "fine": row.fine,
        "unseen": row.unseen, "seconds": round(row.compile_s + row.verify_s, 3),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", default="host", choices=("host", "auto", "pycuda", "cuda-core"))
    parser.add_argument("--jobs", type=int, default=1, help="files judged at once, each in a process of its own")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    parser.add_argument("names", nargs="*", metavar="NAME", help="files whose folder/name holds one of these; else all")
    options = parser.parse_args(arguments)
    chosen = [
        p
        for p in (*HOSTILE, *HONEST)
        if not options.names or any(name in f"{p.parent.name}/{p.stem}" for name in options.names)
    ]
    rows = []
    for row in judged(chosen, options.backend, options.jobs):
        if not rows:
            print(f"on {row.device}, {row.backend}")
        rows.append(row)
        mark, seconds = "ok " if row.fine else "BAD", row.compile_s + row.verify_s
        print(f"{mark} {row.path.parent.name:7} {row.path.stem:40} {seconds:6.2f} s  {row.words}", flush=True)
        if options.json is not None:
            # Written as it grows: what was judged stays even if the run is ended.
            options.json.write_text(json.dumps([as_json(r) for r in rows], indent=1))
    print(f"\n{as_text(confusion(rows))}\n\n{columns(totals(rows))}\n")
    bad = [row for row in rows if not row.fine]
    print(f"{len(kinds(chosen))} kinds of trick; {len(bad)} of {len(rows)} verdicts are not the expected ones")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
