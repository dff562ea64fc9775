"""`compute-sanitizer` on the small cases of a kernel: it sees what no run of ours can, such as a race that does no harm here.

Each of its four tools starts `sanitized_run` once, with the kernel's code built again with line information; the code is
the same otherwise. What a tool says is only ever a reason to trust a kernel less. What counts as a finding:

    memcheck   every report of an access: global, shared or local memory, out of bounds or misaligned
    racecheck  races of severity ERROR. A WARNING is a race inside of a warp or one that may be meant, INFO is one where
               the same value is written; honest kernels have those
    initcheck  reads of global memory that nothing has written: outputs and scratch buffers are allocated and left alone,
               inputs are copied in whole
    synccheck  every report

Errors of driver calls are those of the small program or of the machine, never findings.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from attrs import frozen

from dice_lsp import process
from dice_lsp.process import Limits
from dice_lsp.records import Finding, JudgeJob, Kernel, LaunchSpec, Sanitized
from dice_lsp.worker import sanitized_run
from dice_lsp.worker.arguments import BadSpec, Bound, bind
from dice_lsp.worker.cases import Budget, choose_cases
from dice_lsp.worker.launch import BufferArgument, ScalarArgument, Source

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""In the order in which they run: memory first, because what the others say of a kernel that leaves its buffers is void."""
INSTALL = "pip install 'dice-lsp[sanitizer]'"
SMALL = Budget(elements=1 << 15, products=1 << 22, bytes=4 << 20)
"""Under the tools a kernel runs 10 to 100 times slower."""
TOOL_DEADLINE_S = 60.0
MAX_REPORTS = 20
"""Reports that a tool prints of one run: a kernel that is wrong in one thread is wrong in thousands."""
MAX_FINDINGS = 5
LIMITS = Limits(cpu_s=120, file_bytes=256 << 20, niceness=5)
MAX_LOG_BYTES = 4 << 20
PADDING_BYTES = 256
_ALIGNMENT = 64
_DROPPED_VARIABLES = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVIDIA_TOOLS_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING")

Run = Callable[..., process.Finished]
Place = Callable[[str, int], "int | None"]
"""(file of the line information, its one-based line) -> zero-based line of the document."""


@frozen
class Tool:
    """The program that was found."""

    path: str
    version: str
    """`2026.4.0`; empty where it does not say."""


def find_tool(run: Run = process.run) -> Tool | str:
    """`compute-sanitizer` of the wheel, else of PATH, else of a toolkit; or one sentence on why there is none."""
    if sys.platform != "linux":
        return f"compute-sanitizer runs on Linux; this is {sys.platform}"
    broken = ""
    for path in _candidates():
        if not os.access(path, os.X_OK):
            broken = broken or f"{path} cannot be executed"
            continue
        try:
            done = run([path, "--version"], deadline_s=20.0, limits=LIMITS)
        except OSError as error:
            broken = broken or f"{path} cannot be started: {error.strerror}"
            continue
        text = done.stdout.decode(errors="replace")
        if done.returncode != 0 or "Sanitizer" not in text:
            broken = broken or f"{path} does not say its version"
            continue
        found = re.search(r"Version (\d+(?:\.\d+){1,2})", text)
        return Tool(path, found[1] if found else "")
    return f"{broken}; {INSTALL}" if broken else f"compute-sanitizer is not installed: {INSTALL}"


def _candidates() -> Sequence[str]:
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        # The program itself: what lies in `bin` is a shell script that starts it.
        found += [str(path) for path in sorted(Path(folder).glob("cu*/compute-sanitizer/compute-sanitizer"))]
    if (on_path := shutil.which("compute-sanitizer")) is not None:
        found.append(on_path)
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root and os.path.exists(path := os.path.join(root, "bin", "compute-sanitizer")):
            found.append(path)
    return list(dict.fromkeys(found))


def small_cases(spec: LaunchSpec, kernel: Kernel, seed: int, folder: str | None) -> tuple[Bound, ...] | str:
    """The smallest case, the largest that is small enough and one between them; or why there is none."""
    cases = choose_cases(spec, kernel, SMALL)
    if isinstance(cases, BadSpec):
        return cases.reason
    fitting = [case for case in cases if case.plan.elements <= SMALL.elements]
    if not fitting:
        return "no case is small enough for it: add a smaller size to the //dice: line"
    places = sorted({0, len(fitting) // 2, len(fitting) - 1})
    bounds = [bind(spec, kernel, fitting[place].dims, seed + place, folder=folder) for place in places]
    bad = next((bound.reason for bound in bounds if isinstance(bound, BadSpec)), "")
    return tuple(bound for bound in bounds if isinstance(bound, Bound)) or bad


def sanitize(
    wanted: JudgeJob,
    source: Source,
    tool: Tool,
    device_index: int,
    place: Place,
    *,
    cancelled: threading.Event | None = None,
    on_progress: Callable[[str], None] = lambda words: None,
    run: Run = process.run,
    tools: Sequence[str] = TOOLS,
) -> Sanitized:
    """Run the tools on a kernel's small cases, one after the other, up to the first that finds something.

    Args:
        wanted: the kernel with its launch spec and seed.
        source: the kernel as it is loaded; its code should have line information.
        tool: what `find_tool` found.
        device_index: the GPU, as the driver counts.
        place: finds the document's line for one of the line information.
        cancelled: when another thread sets it, `process.Cancelled` is raised at once.
        on_progress: told which tool runs.
        run: starts a program and waits for it, as `process.run` does.
        tools: those of `TOOLS` to run.
    """
    assert source.compiled is not None
    bounds = small_cases(wanted.spec, wanted.kernel, wanted.seed, os.path.dirname(wanted.path) or None)
    if isinstance(bounds, str):
        return Sanitized((), (), bounds)
    ended: list[str] = []
    reasons: list[str] = []
    with tempfile.TemporaryDirectory(prefix="dice-sanitizer-") as folder:
        _write(Path(folder), source.compiled.cubin, source.compiled.symbol, device_index, bounds)
        for name in tools:
            on_progress(name)
            try:
                done = run(
                    command(tool, name, folder),
                    deadline_s=TOOL_DEADLINE_S,
                    limits=LIMITS,
                    cwd=folder,
                    env={key: value for key, value in os.environ.items() if key not in _DROPPED_VARIABLES},
                    cancelled=cancelled,
                )
            except OSError as error:
                return Sanitized(tuple(ended), (), f"compute-sanitizer could not be started: {error}")
            if done.timed_out:
                reasons.append(f"{name} did not end within {TOOL_DEADLINE_S:g} s")
                continue
            log = _read(Path(folder) / "log.txt")
            findings = parse_log(name, log, [bound.label for bound in bounds], place)
            if findings:
                return Sanitized((*ended, name), findings[:MAX_FINDINGS])
            if (problem := trouble(name, done, log)) is not None:
                reasons.append(problem)
                continue
            ended.append(name)
    return Sanitized(tuple(ended), (), "; ".join(dict.fromkeys(reasons)))


def command(tool: Tool, name: str, folder: str) -> list[str]:
    """How to run one tool on the plan in `folder`; its log is `log.txt` there."""
    options = [
        "--tool", name, "--log-file", os.path.join(folder, "log.txt"), "--print-limit", str(MAX_REPORTS),
        # The launches in the log tell which case a report is about.
        "--dump-kernel-launches", "--print-level", "warn", "--strip-paths", "no", "--show-backtrace", "device",
        "--target-processes", "application-only", "--check-exit-code", "no",
    ]  # fmt: skip
    if name == "memcheck":
        # Buffers lie next to each other otherwise, and an access past one of them is an access to its neighbour.
        options += ["--padding", str(PADDING_BYTES), "--report-api-errors", "no"]
    child = [sys.executable, "-I", "-S", sanitized_run.__file__, folder]
    return [tool.path, *options, *child]


def _write(folder: Path, cubin: bytes, symbol: str, device_index: int, bounds: Sequence[Bound]) -> None:
    """The files that `sanitized_run` reads."""
    launches, pieces, end = [], [], 0
    for bound in bounds:
        arguments: list[dict[str, object]] = []
        for argument in bound.launch().arguments:
            if isinstance(argument, ScalarArgument):
                arguments.append({"data": argument.data.hex()})
                continue
            assert isinstance(argument, BufferArgument)
            offset = None
            if bound.buffers[argument.name].data is not None:
                raw = np.ascontiguousarray(argument.initial).tobytes()
                offset, padded = end, raw + bytes(-len(raw) % _ALIGNMENT)
                pieces.append(padded)
                end += len(padded)
            arguments.append({"nbytes": argument.initial.nbytes, "offset": offset})
        launches.append(
            {"grid": bound.grid, "block": bound.block, "smem_bytes": bound.smem_bytes, "arguments": arguments}
        )
    plan = {"device": device_index, "symbol": symbol, "launches": launches}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (folder / "code.cubin").write_bytes(cubin)
    # A file of no length cannot be mapped.
    (folder / "inputs.bin").write_bytes(b"".join(pieces) or bytes(_ALIGNMENT))


def _read(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    return ""


# What a tool says


@frozen
class _Report:
    """One complaint of a log: its first line, and the lines below it, which are indented deeper."""

    head: str
    body: tuple[str, ...]
    launch: int
    """Number of the launch that it came after, from zero; -1 when the log does not tell."""


def parse_log(tool: str, log: str, cases: Sequence[str], place: Place) -> tuple[Finding, ...]:
    """What a tool complains of in its log, each thing once, in the order of the log.

    `cases` are the labels of the launches; `place` finds lines of the document.
    """
    findings: dict[tuple[str, int | None], Finding] = {}
    for report in _reports(log):
        found = _finding(tool, report, place)
        if found is None:
            continue
        hazard, text, line = found
        case = cases[report.launch] if 0 <= report.launch < len(cases) else ""
        findings.setdefault((hazard, line), Finding(tool, hazard, text, line, case))
    return tuple(findings.values())


def trouble(tool: str, done: process.Finished, log: str) -> str | None:
    """Why a tool did not look at all launches, in one sentence; None when it did."""
    if done.returncode == 0 and _SUMMARY.search(log):
        return None
    said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    complaint = _TROUBLE.search(log)
    reason = complaint[1] if complaint else said[-1] if said else f"it ended with code {done.returncode}"
    return f"{tool} did not run: {reason.strip().rstrip('.')}"


_LINE = re.compile(r"^={9} ?(?P<indent> *)(?P<text>.*?)\s*$")
_LAUNCH = re.compile(r"^(?:Kernel launch|Launch|Launching|Launched)\b")
_PLACE = re.compile(r" in (?P<file>\S.*?):(?P<line>\d+)(?=$|[\s:\[(])")
_THREAD = re.compile(r"by thread \((?P<thread>[\d,]+)\) in block \((?P<block>[\d,]+)\)")
_SUMMARY = re.compile(r"^={9} (?:ERROR|RACECHECK) SUMMARY: ", re.MULTILINE)
_TROUBLE = re.compile(r"^={9} (?:Error|Internal Sanitizer Error|ERROR): (?!.*(?:Race|hazard))(.*)$", re.MULTILINE)
_ACCESS = re.compile(r"^Invalid __(?P<space>\w+)__ (?P<what>[\w ]+?) of size (?P<size>\d+)")
_UNWRITTEN = re.compile(r"^Uninitialized __(?P<space>\w+)__ memory read of size (?P<size>\d+)")
_RACE = re.compile(r"^ERROR: Race reported between (?P<one>\w+) access at ")
_OTHER_ACCESS = re.compile(r"^and (?P<other>\w+) access at ")
_NOT_OURS = re.compile(
    r"^(?:Error\b|Internal|Program hit|Target|COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|WARNING|Warning|INFO"
    r"|Leaked|ERROR: Potential|Tracking|Unused|No attachable)"
)


def _reports(log: str) -> Sequence[_Report]:
    reports: list[_Report] = []
    head, body, launch = "", list[str](), -1
    for raw in [*log.splitlines(), "========="]:
        match = _LINE.match(raw)
        if match is None:
            continue
        text = match["text"]
        if text and match["indent"] and head:
            body.append(text)
            continue
        if head:
            reports.append(_Report(head, tuple(body), launch))
        head, body = "", []
        if _LAUNCH.match(text):
            launch += 1
        elif text and not _NOT_OURS.match(text):
            head = text
    return reports


def _finding(tool: str, report: _Report, place: Place) -> tuple[str, str, int | None] | None:
    """(hazard, sentence, line of the document) of one report; None when it is no fault of the kernel."""
    lines = _lines(report, place)
    line = next((found for found in lines if found is not None), None)
    thread = next((match for text in report.body if (match := _THREAD.search(text)) is not None), None)
    who = f" by thread ({thread['thread']}) of block ({thread['block']})" if thread is not None else ""
    if tool == "memcheck" and (match := _ACCESS.match(report.head)) is not None:
        misaligned = any("misaligned" in text for text in report.body)
        how = "misaligned" if misaligned else "out of bounds"
        return (
            "fault" if misaligned else "out_of_bounds",
            f"{how} {match['space']} {match['what']} of {match['size']} bytes{who}",
            line,
        )
    if tool == "initcheck" and (match := _UNWRITTEN.match(report.head)) is not None:
        return "uninitialized", f"reads {match['size']} bytes of {match['space']} memory that nothing wrote{who}", line
    if tool == "racecheck" and (match := _RACE.match(report.head)) is not None:
        others = [(text, m) for text in report.body if (m := _OTHER_ACCESS.match(text)) is not None]
        words = f"race in shared memory: a {match['one'].lower()} here"
        if others:
            at = next((found for found in _lines(_Report(others[0][0], (), 0), place) if found is not None), None)
            there = "elsewhere" if at is None else "here" if at == line else f"in line {at + 1}"
            words += f" and a {others[0][1]['other'].lower()} {there}, no barrier between them"
        return "race", words, line
    if tool in ("memcheck", "synccheck"):
        hazard = "divergent_barrier" if tool == "synccheck" else "fault"
        return hazard, f"{report.head[:1].lower()}{report.head[1:]}".rstrip(".").replace(". ", ": ") + who, line
    return None


def _lines(report: _Report, place: Place) -> Sequence[int | None]:
    """The document's lines that a report names, the place of the access first and then what called it."""
    found = (_PLACE.search(text) for text in (report.head, *report.body))
    return [place(match["file"], int(match["line"])) for match in found if match is not None]
