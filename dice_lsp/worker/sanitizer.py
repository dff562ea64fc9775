"""`compute-sanitizer` on the small cases of a kernel: it sees what no run of ours can, such as a race that does no harm here.

Each of its four tools starts `sanitized_run` once, with the kernel's code built again with line information; the code is
the same otherwise. What a tool says is only ever a reason to trust a kernel less. What counts as a finding:

    memcheck   every report of an access: global, shared or local memory, out of bounds or misaligned
    racecheck  races of severity Error. A Warning is a race of threads of one warp, as old warp-synchronous code has it, and
               Info is a write of the value that stands there already; honest kernels have both
    initcheck  reads of global memory that nothing has written: outputs and scratch buffers are allocated and left alone,
               inputs are copied in whole
    synccheck  every report

Errors of driver calls are those of the small program or of the machine, never findings. The report is read from the XML
that all versions write (seen: 2025.3 of CUDA 13.0 and 2026.4 of the wheel of 13.5). It does not say which launch it is
about, so after a finding the cases are run again one by one, the smallest first.
"""

import contextlib
import functools
import importlib.util
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from attrs import frozen

from dice_lsp import process
from dice_lsp.process import Limits
from dice_lsp.records import Compiled, Finding, JudgeJob, Kernel, LaunchSpec, Sanitized
from dice_lsp.worker import sanitized_run
from dice_lsp.worker.arguments import BadSpec, Bound, bind
from dice_lsp.worker.cases import Budget, choose_cases, same_template
from dice_lsp.worker.launch import BufferArgument, ScalarArgument, Source
from dice_lsp.worker.recorded import bind_recorded, is_only_recorded, own_label

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""In the order in which they run: memory first, because what the others say of a kernel that leaves its buffers is void."""
TOOLKIT = "/usr/local/cuda"
INSTALL = "pip install 'dice-lsp[sanitizer]'"
SMALL = Budget(elements=1 << 15, products=1 << 22, bytes=4 << 20)
"""Under the tools a kernel runs 10 to 100 times slower."""
TOOL_DEADLINE_S = 60.0
MAX_REPORTS = 20
"""Reports that a tool writes of one run: a kernel that is wrong in one thread is wrong in thousands."""
MAX_FINDINGS = 5
LIMITS = Limits(file_bytes=256 << 20, niceness=10)
"""No limit on processor time: racecheck works with a thread for each core, and there is a deadline."""
MAX_XML_BYTES = 16 << 20
PADDING_BYTES = 256
REPORT = "report.xml"
_ALIGNMENT = 64
_LINE_END = re.compile(r"\r\n|\r|\n")
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
    for folder in _wheel_folders():
        # The program itself: what lies in `bin` is a shell script that starts it.
        found += [str(path) for path in sorted(folder.glob("*/compute-sanitizer/compute-sanitizer"))]
    if (on_path := shutil.which("compute-sanitizer")) is not None:
        found.append(on_path)
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), TOOLKIT):
        if root and os.path.exists(path := os.path.join(root, "bin", "compute-sanitizer")):
            found.append(path)
    return list(dict.fromkeys(found))


def _wheel_folders() -> Sequence[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]


def small_cases(
    spec: LaunchSpec, kernel: Kernel, seed: int, folder: str | None, compiled: Compiled | None = None
) -> tuple[Bound, ...] | str:
    """The smallest case, the largest that is small enough and one between them; or why there is none."""
    if is_only_recorded(spec):
        return _small_recorded(spec, kernel, compiled)
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


def _small_recorded(spec: LaunchSpec, kernel: Kernel, compiled: Compiled | None) -> tuple[Bound, ...] | str:
    """The recorded launches of this instantiation that are small enough; or why there is none."""
    own = (spec.captured, own_label(spec))
    others = [(case.captured, case.label) for case in spec.cases if same_template(case, spec)]
    bounds, reasons = [], ["no recorded launch is small enough for it"]
    for launch, label in (own, *others):
        if launch is None:
            continue
        case = bind_recorded(launch, label, spec, kernel, compiled, SMALL.bytes)
        if isinstance(case, BadSpec):
            reasons.append(case.reason)
        elif math.prod((*case.bound.grid, *case.bound.block)) <= 4 * SMALL.elements:
            bounds.append(case.bound)
    return tuple(bounds[:3]) or reasons[-1]


def sanitize(
    wanted: JudgeJob,
    source: Source,
    tool: Tool,
    device_index: int,
    place: Place,
    *,
    cancelled: threading.Event | None = None,
    on_tool: Callable[[str], None] = lambda name: None,
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
        on_tool: told which tool runs next; what it raises ends the work.
        run: starts a program and waits for it, as `process.run` does.
        tools: those of `TOOLS` to run.
    """
    if not wanted.spec.launchable:
        return Sanitized((), (), wanted.spec.unknown[0] if wanted.spec.unknown else "the launch is not known")
    folder = os.path.dirname(wanted.path) or None
    bounds = small_cases(wanted.spec, wanted.kernel, wanted.seed, folder, source.compiled)
    if isinstance(bounds, str):
        return Sanitized((), (), bounds)
    look = functools.partial(_look, wanted, source, tool, device_index, place, cancelled, run)
    ended: list[str] = []
    problems: dict[str, list[str]] = {}
    for name in tools:
        on_tool(name)
        findings, problem = look(name, bounds)
        if findings and len(bounds) > 1:
            for bound in bounds:
                alone, _ = look(name, (bound,))
                if alone:
                    findings = alone
                    break
        if findings:
            return Sanitized((*ended, name), findings[:MAX_FINDINGS], _in_words(problems))
        if problem is None:
            ended.append(name)
        else:
            problems.setdefault(problem, []).append(name)
    return Sanitized(tuple(ended), (), _in_words(problems))


def _in_words(problems: Mapping[str, Sequence[str]]) -> str:
    """`memcheck, racecheck did not ...; initcheck did not ...`."""
    return "; ".join(f"{', '.join(names)} {problem}" for problem, names in problems.items())


def _look(
    wanted: JudgeJob,
    source: Source,
    tool: Tool,
    device_index: int,
    place: Place,
    cancelled: threading.Event | None,
    run: Run,
    name: str,
    bounds: Sequence[Bound],
) -> tuple[tuple[Finding, ...], str | None]:
    """What one tool finds in these cases, and what kept it from looking at all of them, without its name."""
    assert source.compiled is not None
    with tempfile.TemporaryDirectory(prefix="dice-sanitizer-") as folder:
        _write(Path(folder), source.compiled.cubin, source.compiled.symbol, device_index, bounds)
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
            return (), f"could not be started: {error.strerror or error}"
        case = bounds[0].label if len(bounds) == 1 else f"{bounds[0].label} to {bounds[-1].label}"
        written = _read(Path(folder) / REPORT)
        findings = parse_report(name, written, case, place, _LINE_END.split(wanted.text))
        if done.timed_out:
            return findings, f"did not end within {TOOL_DEADLINE_S:g} s"
        if (Path(folder) / sanitized_run.ENDED).exists():
            return findings, None
        said = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        complaint = _COMPLAINT.search(done.stdout.decode("utf-8", "replace"))
        told = said[-1] if said else complaint[1] if complaint else f"it ended with code {done.returncode}"
        return findings, f"did not look at every launch: {told.rstrip('.')}"


def command(tool: Tool, name: str, folder: str) -> list[str]:
    """How to run one tool on the plan in `folder`; it writes its report there."""
    options = [
        "--tool", name, "--xml", "--save", os.path.join(folder, REPORT), "--print-limit", str(MAX_REPORTS),
        # The host's calls are always the same ones, and to walk them for each report takes seconds.
        "--target-processes", "application-only", "--show-backtrace", "device",
    ]  # fmt: skip
    if name == "memcheck":
        # Allocations lie next to each other, and an access past the end of one of them would be one to its neighbour.
        options += ["--padding", str(PADDING_BYTES)]
    if name == "racecheck":
        options += ["--racecheck-detect-level", "error"]
    return [tool.path, *options, sys.executable, "-I", "-S", sanitized_run.__file__, folder]


def _write(folder: Path, cubin: bytes, symbol: str, device_index: int, bounds: Sequence[Bound]) -> None:
    """The files that `sanitized_run` reads."""
    launches, pieces, end = [], [], 0
    for bound in bounds:
        arguments: list[dict[str, object]] = []
        for argument in bound.launch().arguments:
            if isinstance(argument, ScalarArgument):
                pointers = [(p.offset, p.buffer, p.byte_offset) for p in argument.pointers]
                arguments.append({"data": argument.data.hex(), "pointers": pointers})
                continue
            assert isinstance(argument, BufferArgument)
            offset = None
            if bound.buffers[argument.name].data is not None:
                raw = np.ascontiguousarray(argument.initial).tobytes()
                offset, padded = end, raw + bytes(-len(raw) % _ALIGNMENT)
                pieces.append(padded)
                end += len(padded)
            arguments.append(
                {
                    "name": argument.name,
                    "nbytes": argument.initial.nbytes,
                    "offset": offset,
                    "passed": argument.passed,
                }
            )
        launches.append(
            {
                "grid": bound.grid,
                "block": bound.block,
                "smem_bytes": bound.smem_bytes,
                "arguments": arguments,
                "variables": {name: data.hex() for name, data in bound.variables.items()},
            }
        )
    plan = {"device": device_index, "symbol": symbol, "launches": launches}
    (folder / sanitized_run.PLAN).write_text(json.dumps(plan), encoding="utf-8")
    (folder / sanitized_run.CODE).write_bytes(cubin)
    # A file of no length cannot be mapped.
    (folder / sanitized_run.INPUTS).write_bytes(b"".join(pieces) or bytes(_ALIGNMENT))


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(MAX_XML_BYTES)
    return b""


# What a tool says

_COMPLAINT = re.compile(r"^={9} (?:Internal Sanitizer )?Error: (.*)$", re.MULTILINE)
_NO_FAULT_OF_THE_KERNEL = {"Api", "Leak", "UnusedMemory"}
_QUOTED_CHARACTERS = 40


def parse_report(tool: str, xml: bytes, case: str, place: Place, text: Sequence[str] = ()) -> tuple[Finding, ...]:
    """What a tool complains of in the XML that it saved: one finding for each kind and line, in its order.

    `case` goes into each finding, `place` finds lines of the document, and `text` is its lines. A report that was not
    written to its end counts as far as it goes.
    """
    findings: dict[tuple[str, int | None], Finding] = {}
    for record in _records(xml):
        found = _finding(tool, record, place, text)
        if found is not None:
            hazard, words, line = found
            findings.setdefault((hazard, line), Finding(tool, hazard, words, line, case))
    return tuple(findings.values())


def _records(xml: bytes) -> Sequence[ElementTree.Element]:
    records: list[ElementTree.Element] = []
    with contextlib.suppress(ElementTree.ParseError):
        for _, element in ElementTree.iterparse(io.BytesIO(xml)):
            if element.tag == "record":
                records.append(element)
    return records


def _finding(
    tool: str, record: ElementTree.Element, place: Place, text: Sequence[str]
) -> tuple[str, str, int | None] | None:
    """(hazard, sentence, line of the document) of one record; None when it is no fault of the kernel."""
    kind, level = record.findtext("kind", ""), record.findtext("level", "Error")
    if kind in _NO_FAULT_OF_THE_KERNEL or level.lower() != "error":
        return None
    said = record.findtext("what/text", "").strip().rstrip(".")
    if tool == "racecheck" and record.find("what/source") is not None:
        return "race", *_race(record, place, text)
    if record.find("who") is None:
        return None
    line = _line(record, place)
    size, space = record.findtext("what/size", "some"), record.findtext("what/space", "").strip("_")
    if tool == "initcheck":
        words = f"reads {size} bytes of memory that nothing has written, {_who(record)}"
        return "uninitialized", words, line
    if tool == "synccheck":
        detail = record.findtext("what/type", "").strip().rstrip(".")
        words = ": ".join(part[:1].lower() + part[1:] for part in (said, detail) if part)
        return "divergent_barrier", f"{words}, {_who(record)}", line
    if tool == "racecheck":
        return "race", f"{said[:1].lower()}{said[1:]}, {_who(record)}", line
    direction, error = record.findtext("what/direction", ""), record.findtext("what/error", "")
    if space and "misaligned" in f"{error} {said}":
        return "fault", f"misaligned {direction} of {size} bytes of {space} memory, {_who(record)}", line
    if space:
        verb = {"read": "reads", "write": "writes", "atomic": "changes"}.get(direction, "accesses")
        words = f"{verb} {size} bytes of {space} memory that is not its own, {_who(record)}"
        return "out_of_bounds", words, line
    said = said or record.findtext("what/exception", "fault")
    return "fault", f"{said[:1].lower()}{said[1:]}, {_who(record)}", line


def _race(record: ElementTree.Element, place: Place, text: Sequence[str]) -> tuple[str, int | None]:
    """(sentence, line) of a race; the line is the first one's that is in the document."""
    accesses = [part for tag in ("source", "destination") for part in record.findall(f"what/{tag}")]
    places = [(access.findtext("direction", "access").lower(), _line(access, place)) for access in accesses]
    first = next((n for n, (_, line) in enumerate(places) if line is not None), 0)
    verbs = {"write": "written", "read": "read"}
    words = f"{verbs.get(places[first][0], 'used')} here"
    for number, (direction, line) in enumerate(places):
        if number != first:
            quoted = text[line].strip() if line is not None and line < len(text) else ""
            if len(quoted) > _QUOTED_CHARACTERS:
                quoted = quoted[: _QUOTED_CHARACTERS - 2] + ".."
            there = "here" if line == places[first][1] else f"at `{quoted}`" if quoted else "elsewhere"
            words += f" and {verbs.get(direction, 'used')} {there} by another thread"
    return f"{words}, no barrier between", places[first][1]


def _line(element: ElementTree.Element, place: Place) -> int | None:
    """The document's line of an access: where it is, else what called it."""
    for where in (*element.findall("where"), *element.findall("deviceStack/frame")):
        path, number = where.findtext("path", ""), where.findtext("line", "")
        if path and number.isdigit() and (line := place(path, int(number))) is not None:
            return line
    return None


def _who(record: ElementTree.Element) -> str:
    def index(tag: str) -> str:
        return ", ".join(record.findtext(f"who/{tag}/{axis}", "?") for axis in "xyz")

    return f"thread ({index('threadIdx')}) of block ({index('blockIdx')})"
