"""What is inferred about launches beside what programs really launch.

    python -m tests.coverage.compare collect DIR --out FILE [--jobs N] [--seconds N] [--only PART]
    python -m tests.coverage.compare table DIR FILE [--details]

`collect` needs a GPU: it builds every program below DIR with nvcc, each file with a `main` together with the other
sources of its folder, runs it without arguments under `dice-lsp capture`, and writes what was launched to FILE, which
does not hold the contents of memory. `table` reads that anywhere and compares each field that is claimed for a kernel
with the launches of the program: grid, block, dynamic shared memory, scalars, sizes of buffers.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import os
import re
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from dice_lsp import process
from dice_lsp.capture import session, store
from dice_lsp.capture.recording import CaptureError
from dice_lsp.capture_command import sources_below
from dice_lsp.command_line import UsageError, read_document
from dice_lsp.config import Settings
from dice_lsp.pipeline import Engine
from dice_lsp.records import Kernel, LaunchSpec
from dice_lsp.source.expressions import evaluate
from dice_lsp.worker.compile import find_nvcc
from dice_lsp.worker.elements import element_of
from dice_lsp.worker.recorded import template_of

SOURCES = (".cu", ".cpp", ".cc", ".c")
MAIN = re.compile(r"\b(?:int|void)\s+main\s*\(")
LIBRARIES = {
    "cublas": "-lcublas", "curand.h": "-lcurand", "cufft": "-lcufft", "cusparse": "-lcusparse", "cusolver": "-lcusolver",
    "nvrtc": "-lnvrtc", "<cuda.h>": "-lcuda", "npp": "-lnppc", "omp.h": "-Xcompiler=-fopenmp", "cublasLt": "-lcublasLt",
}  # fmt: skip
NO_PROGRAM = re.compile(
    r"#\s*include\s*[<\"](?:GL/|helper_gl|.*glut|vulkan|d3d1|EGL/|nvscibuf|mpi\.h|torch/|cutlass|cute/|cudnn)"
)
MISSING = {
    "to `cublas": "-lcublas", "to `cublasLt": "-lcublasLt", "to `curand": "-lcurand", "to `cufft": "-lcufft",
    "to `nvrtc": "-lnvrtc", "to `cu": "-lcuda", "to `nvml": "-lnvidia-ml", "kernel launch from __device__": "-rdc=true",
    "to `cusparse": "-lcusparse", "to `cusolver": "-lcusolver",
}  # fmt: skip
"""What a build that fails says, and what helps."""
BUILD_S, RUN_S = 120.0, 40.0


# Programs and their runs


@frozen
class Program:
    """One program of a tree."""

    name: str
    main: Path
    others: tuple[Path, ...]
    text: str


def programs(tree: Path, only: Sequence[str]) -> Iterator[Program]:
    """Every file with a `main`, with the sources beside it that have none."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(tree.rglob("*")):
        if path.suffix in SOURCES and path.is_file() and ".dice" not in path.parts:
            folders.setdefault(path.parent, []).append(path)
    for folder, files in folders.items():
        texts = {path: path.read_text(errors="replace") for path in files}
        mains = [path for path in files if MAIN.search(texts[path])]
        others = tuple(path for path in files if path not in mains)
        for main in mains:
            name = main.relative_to(tree).as_posix()
            text = "\n".join([texts[main], *(texts[path] for path in others)])
            cuda = any(path.suffix == ".cu" for path in (main, *others))
            if cuda and not NO_PROGRAM.search(text) and (not only or any(part in name for part in only)):
                yield Program(name, main, others, text)


def build(program: Program, tree: Path, nvcc: str, target: Path) -> str:
    """Build a program; an empty string, or what nvcc says."""
    above = [program.main.parent, *(p for p in program.main.parent.parents if p.is_relative_to(tree))]
    folders = [
        f / name for f in above for name in ("", "inc", "include", "Common", "common", "utils") if (f / name).is_dir()
    ]
    options = [f"-I{folder}" for folder in folders] + [flag for word, flag in LIBRARIES.items() if word in program.text]
    for path in sys.path:
        # The libraries that come as wheels.
        for found in Path(path or ".").glob("nvidia/cu*/lib"):
            options += [f"-L{found}", f"-Xlinker=-rpath={found}"]
    first, more, sources = "", list[str](), (program.main, *program.others)
    for _ in range(5):
        command = [
            nvcc,
            "-arch=sm_90",
            "-std=c++17",
            "-O1",
            "-w",
            "--expt-relaxed-constexpr",
            *more,
            *map(str, sources),
        ]
        done = process.run([*command, *options, "-o", str(target)], deadline_s=BUILD_S, limits=process.Limits())
        if done.returncode == 0 and not done.timed_out:
            return ""
        said = (done.stderr + done.stdout).decode(errors="replace")
        first = first or said
        wanted = [flag for word, flag in MISSING.items() if word in said and flag not in more]
        if wanted:
            more += wanted
        elif "error:" in said and len(sources) > 1:
            sources = (program.main,)
        else:
            break
    return first or "it said nothing"


def launched(program: Program, built: Path, scratch: Path, tools: tuple[Path, Path]) -> dict[str, Any]:
    """Run a program and say what it launched."""

    def start(argv: Sequence[str], environment: Mapping[str, str], folder: str) -> int:
        return process.attended(argv, env=environment, cwd=folder, on_output=lambda data: None, deadline_s=RUN_S)

    folder = program.main.parent
    try:
        mains = [path for path in folder.iterdir() if path.suffix in SOURCES and path != program.main]
        apart = {os.path.realpath(path) for path in mains if MAIN.search(path.read_text(errors="replace"))}
        # Programs that share a folder have kernels of the same names.
        sources = tuple(source for source in sources_below(folder, None) if source.path not in apart)
        wish = session.Wish(sources, (str(built),), str(folder), str(scratch), limit_mb=4, launches=12, wait_s=3)
        report = session.record(wish, start, found=tools)
    except (CaptureError, UsageError) as error:
        return {"reason": str(error)}
    found: dict[str, Any] = {
        "reason": report.reason,
        "exit_code": report.exit_code,
        "notes": list(report.notes),
        "kernels": [],
    }
    if report.path and report.kept is not None:
        for recorded in store.read_file(report.path):
            found["kernels"].append({
                "file": os.path.relpath(os.path.normpath(scratch / recorded.file), folder), "kernel": recorded.kernel_id,
                "grid": recorded.grid, "block": recorded.block, "smem_bytes": recorded.smem_bytes, "order": recorded.order,
                "name": recorded.kernel, "problems": recorded.problems, "device": recorded.device,
                "parameters": [
                    {"data": p.data[:64].hex(), "size": p.size, "memory": _memory(recorded, p.data)} for p in recorded.parameters
                ],
            })  # fmt: skip
    return found


def _memory(recorded: store.Recorded, data: bytes) -> list[int] | None:
    """Bytes of the allocation that a pointer leads into, and from where."""
    word = int.from_bytes(data, "little")
    for of in recorded.allocations:
        if len(data) == 8 and 0 <= word - of.address < of.nbytes:
            return [of.nbytes, word - of.address]
    return None


def collect(arguments: argparse.Namespace) -> int:
    """Build and run everything, as far as the time goes; what is there already in the file is left out."""
    until = time.monotonic() + arguments.seconds
    tree = arguments.tree.resolve()
    nvcc = arguments.nvcc or find_nvcc(None)
    if nvcc is None:
        print("nvcc is not here", file=sys.stderr)
        return 2
    try:
        tools = session.tools(os.environ)
    except CaptureError as error:
        print(error, file=sys.stderr)
        return 2
    found: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    writing, gpu = threading.Lock(), threading.Semaphore(arguments.at_once)

    def one(program: Program) -> None:
        if time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory() as scratch:
            built = Path(scratch, program.main.stem)
            said = build(program, tree, str(nvcc), built)
            if said:
                result: dict[str, Any] = {"not_built": said[-2000:]}
            elif time.monotonic() > until:
                return
            else:
                with gpu:
                    result = launched(program, built, Path(scratch), tools)
        with writing:
            found[program.name] = result
            arguments.out.write_text(json.dumps(found, indent=1))
            print(f"{program.name}: {_said(result)}", flush=True)

    wanted = [program for program in programs(tree, arguments.only) if program.name not in found]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for task in [pool.submit(one, program) for program in wanted]:
            task.result()
    print(f"{len(found)} programs, {sum(bool(result.get('kernels')) for result in found.values())} launched something")
    return 0


def _said(result: Mapping[str, Any]) -> str:
    if "not_built" in result:
        lines = [line for line in result["not_built"].splitlines() if "error" in line or "undefined" in line]
        return f"not built: {(lines or ['?'])[0][:150]}"
    return f"{len(result.get('kernels', ()))} launches, exit {result.get('exit_code')} {result.get('reason') or ''}"


# The comparison


@frozen
class Outcome:
    """One claimed field of one kernel beside what was launched."""

    kernel: str
    field: str
    sure: str
    result: str
    """`right`, `wrong`, or `open` where nothing can be compared."""
    said: str = ""


def compared(place: str, kernel: Kernel, spec: LaunchSpec, launches: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """What a spec claims, field by field, beside the launches of a program that belong to its kernel."""
    claims = [_claim(spec, kernel, None)] + [_claim(spec, kernel, case) for case in spec.cases if case.captured is None]
    best: list[Outcome] = []
    for claim in claims:
        mine = [launch for launch in launches if _same_instance(kernel, spec, claim, launch)]
        if not mine:
            # Another path of the program, which this run did not take.
            best.append(Outcome(place, "instance", _sure(spec, "template"), "open"))
            continue
        tries = [_against(place, kernel, spec, claim, launch) for launch in mine]
        # Which of its launches a claim is of is not said, so the one that it fits best.
        best += min(tries, key=lambda outcomes: sum(outcome.result == "wrong" for outcome in outcomes))
    return best


def _same_instance(kernel: Kernel, spec: LaunchSpec, claim: Mapping[str, Any], launch: Mapping[str, Any]) -> bool:
    """Whether a launch is one of the claimed template arguments, as far as both are known."""
    actual = template_of(SimpleNamespace(kernel=launch["name"]), kernel)  # type: ignore[arg-type]
    for name, value in (actual or {}).items():
        claimed = claim["template"].get(name)
        if claimed is None:
            continue
        with contextlib.suppress(ValueError, ArithmeticError):
            claimed = str(evaluate(claimed, spec.constants))
        if value in ("true", "false"):
            value, claimed = str(int(value == "true")), {"true": "1", "false": "0"}.get(claimed, claimed)
        if claimed.lstrip("-").isdigit() and value.lstrip("-").isdigit() and claimed != value:
            return False
        if (
            not claimed.lstrip("-").isdigit()
            and "".join(claimed.split()) != "".join(value.split())
            and "::" not in value
        ):
            return False
    return True


def _claim(spec: LaunchSpec, kernel: Kernel, case: Any) -> dict[str, Any]:
    grid = spec.grid if case is None else case.grid
    block = spec.block if case is None else case.block
    dims = {dim.name: dim.values[0] for dim in spec.dims} if case is None else dict(case.dims)
    return {
        "label": spec.label if case is None else case.label,
        "grid": grid, "block": block, "smem_bytes": spec.smem_bytes if case is None else case.smem_bytes, "dims": dims,
        "scalars": dict(spec.scalars) if case is None else {**spec.scalars, **case.scalars},
        "extents": {b.name: b.extents for b in spec.buffers} | ({} if case is None else dict(case.extents)),
        "template": dict(spec.template) if case is None else {**spec.template, **case.template},
    }  # fmt: skip


def _sure(spec: LaunchSpec, field: str) -> str:
    return str(spec.confidence.get(field, "certain"))


def _against(
    place: str, kernel: Kernel, spec: LaunchSpec, claim: Mapping[str, Any], launch: Mapping[str, Any]
) -> list[Outcome]:
    given = dict(zip((p.name for p in kernel.parameters), launch["parameters"], strict=False))
    outcomes: list[Outcome] = []
    # A size that is only an example says nothing by itself: what is claimed then is how the rest follows from it.
    examples = {
        dim.name for dim in spec.dims if _sure(spec, f"dims.{dim.name}") != "certain" or str(dim.origin) == "default"
    }
    names: dict[str, int] = dict(spec.constants)
    for key, value in claim["template"].items():
        try:
            names[key] = evaluate(value, names)
        except (ValueError, ArithmeticError):
            continue
    unknown = set()
    for name, value in claim["dims"].items():
        actual = _integer(kernel, name, given)
        if name in examples:
            if actual is None:
                unknown.add(name)
            else:
                names[name] = actual
        else:
            names[name] = value
            if actual is not None:
                outcomes.append(_outcome(place, f"scalar {name}", _sure(spec, f"dims.{name}"), value, actual))

    def number(expression: str) -> int | None:
        if any(re.search(rf"\b{re.escape(name)}\b", expression) for name in unknown):
            return None
        try:
            return evaluate(expression, names)
        except (ValueError, ArithmeticError, RecursionError):
            return None

    for field in ("grid", "block"):
        if claim[field] is not None:
            values = [number(part) for part in claim[field]]
            outcomes.append(
                _outcome(place, field, _sure(spec, field), None if None in values else values, list(launch[field]))
            )
    if spec.grid is not None:
        outcomes.append(
            _outcome(place, "smem_bytes", _sure(spec, "smem_bytes"), number(claim["smem_bytes"]), launch["smem_bytes"])
        )
    for name, expression in claim["scalars"].items():
        actual = _integer(kernel, name, given)
        if actual is not None and name not in claim["dims"]:
            outcomes.append(
                _outcome(place, f"scalar {name}", _sure(spec, f"scalars.{name}"), number(expression), actual)
            )
    for name, extents in claim["extents"].items():
        memory = given.get(name, {}).get("memory")
        parameter = next((p for p in kernel.parameters if p.name == name), None)
        element = None if parameter is None else element_of(claim["template"].get(parameter.element, parameter.element))
        values = [number(extent) for extent in extents]
        if memory is None or element is None or None in values:
            continue
        needed = element.itemsize
        for value in values:
            needed *= value or 0
        room = memory[0] - memory[1]
        # A program may allocate more than the kernel uses, but what is claimed must be there.
        sure = _sure(spec, f"buffers.{name}")
        result = "right" if 0 < needed <= room else "wrong"
        outcomes.append(Outcome(place, "buffer", sure, result, f"{name}: claimed {needed} bytes, there are {room}"))
    return outcomes


def _outcome(place: str, field: str, sure: str, claimed: Any, actual: Any) -> Outcome:
    kind = field.split()[0]
    if claimed is None:
        return Outcome(place, kind, sure, "open")
    return Outcome(
        place, kind, sure, "right" if claimed == actual else "wrong", f"{field}: claimed {claimed}, launched {actual}"
    )


def _integer(kernel: Kernel, name: str, given: Mapping[str, Any]) -> int | None:
    parameter = next((p for p in kernel.parameters if p.name == name and not p.pointer), None)
    if parameter is None or name not in given or re.search(r"float|double|half|bool\s*\*", parameter.spelling):
        return None
    data = bytes.fromhex(given[name]["data"])
    code = {1: "b", 2: "h", 4: "i", 8: "q"}.get(len(data))
    if code is None or given[name]["memory"] is not None:
        return None
    return int(
        struct.unpack(
            f"<{code.upper() if 'unsigned' in parameter.spelling or 'size_t' in parameter.spelling else code}", data
        )[0]
    )


async def _specs(path: Path) -> dict[str, tuple[Kernel, LaunchSpec]]:
    engine = Engine(Settings())
    try:
        return {kernel.id: (kernel, spec) for kernel, spec in await engine.specs(read_document(path), str(path))}
    finally:
        await engine.close()


def table(arguments: argparse.Namespace) -> int:
    """Print the comparison; 1 where a claim that is called certain or likely is wrong in more than 5 % of cases."""
    outcomes: list[Outcome] = []
    known, silent = 0, []
    found = json.loads(arguments.file.read_text())
    specs: dict[Path, dict[str, tuple[Kernel, LaunchSpec]]] = {}
    for program, result in sorted(found.items()):
        by_kernel: dict[tuple[Path, str], list[Mapping[str, Any]]] = {}
        for launch in result.get("kernels", ()):
            path = Path(os.path.normpath(arguments.tree / Path(program).parent / launch["file"]))
            by_kernel.setdefault((path, launch["kernel"]), []).append(launch)
        for (path, name), launches in by_kernel.items():
            if path not in specs:
                specs[path] = asyncio.run(_specs(path))
            kernel, spec = specs[path].get(name, (None, None))
            place = f"{path.relative_to(arguments.tree)} {name}"
            if kernel is None or spec is None:
                silent.append(f"{place}: no kernel of that name is found")
            elif not spec.launchable:
                silent.append(f"{place}: {(spec.unknown or ('skipped',))[0]}")
            else:
                known += 1
                outcomes += compared(place, kernel, spec, launches)
    print(f"{known} kernels with an inferred launch were launched, and {len(silent)} without.\n")
    print("| field | sure | right | wrong | not comparable |\n|---|---|---|---|---|")
    counts = Counter((outcome.field, outcome.sure, outcome.result) for outcome in outcomes)
    rows = sorted({(field, sure) for field, sure, _ in counts})
    for field, sure in rows:
        print(f"| {field} | {sure} | {' | '.join(str(counts[field, sure, r]) for r in ('right', 'wrong', 'open'))} |")
    confident = [outcome for outcome in outcomes if outcome.sure in ("certain", "likely") and outcome.result != "open"]
    wrong = [outcome for outcome in confident if outcome.result == "wrong"]
    kernels, bad = {outcome.kernel for outcome in confident}, {outcome.kernel for outcome in wrong}
    share = 1 - len(wrong) / max(1, len(confident))
    print(
        f"\nRight: {share:.1%} of {len(confident)} claims; {len(kernels) - len(bad)} of {len(kernels)} kernels without a wrong one."
    )
    for outcome in wrong:
        print(f"- {outcome.kernel} ({outcome.sure}): {outcome.said}")
    if arguments.details:
        print("\nLaunched, but not inferred:\n" + "\n".join(f"- {line}" for line in silent))
    return 0 if share >= 0.95 else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage.compare", description=__doc__)
    commands = parser.add_subparsers(required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("tree", type=Path)
    collecting.add_argument("--out", type=Path, required=True)
    collecting.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    collecting.add_argument("--at-once", type=int, default=3, help="programs on the GPU")
    collecting.add_argument("--seconds", type=float, default=600)
    collecting.add_argument("--only", action="append", default=[])
    collecting.add_argument("--nvcc")
    collecting.set_defaults(run=collect)
    showing = commands.add_parser("table")
    showing.add_argument("tree", type=Path)
    showing.add_argument("file", type=Path)
    showing.add_argument("--details", action="store_true")
    showing.set_defaults(run=table)
    arguments = parser.parse_args()
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
