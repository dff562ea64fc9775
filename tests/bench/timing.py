"""How far the tool's times can be trusted, in one command: `python -m tests.bench.timing [--out FILE]`. Needs a GPU.

1. Known kernels of about nothing, 2, 5, 10, 50 and 500 us, timed in ten processes one after another: their medians, how
   far the quartiles of a process and the medians of the processes lie apart; beside them what Nsight Compute,
   `cuda-bench`, CUPTI, Triton and plain events say of the same kernels (`tests.gpu.oracle`). A tool that is not
   installed leaves its column empty and is named.
2. A hundred races of a kernel against itself: none may be won, and hardly any may be left open.
3. A hundred races against a kernel that does 3 % more, in both orders.

Prints the tables as they stand in tests/gpu/RESULTS.md, and keeps in FILE what is known so far.
The races come first. About five minutes; `--kernels "empty,spin 3k"` times only these, `--alone` leaves out the other tools.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dice_lsp.records import kind_of
from dice_lsp.worker.benchmark import compare, launch_floor_us, net, summarize
from dice_lsp.worker.device import GpuBackend, Samples, open_backend
from dice_lsp.worker.launch import Source
from tests.gpu.oracle import LAUNCHES, TABLE, M
from tests.gpu.support import TIMED, plain_source, timed_order

Row = tuple[str, str, int, int]
AGAINST_ITSELF: tuple[tuple[Row, int], ...] = (
    (("spin 3k", "spin", 3_000, 33_792), 25), (("spin 8k", "spin", 8_000, 33_792), 25),
    (("saxpy 1M", "saxpy", M, M), 25), (("saxpy 8M", "saxpy", 8 * M, 8 * M), 25),
)  # fmt: skip
"""What is raced against itself, and how often."""
MORE = 33 * M // 4
"""Elements of a launch of which one kernel does 32 of 33, the other all."""
PLANTED = (
    TIMED
    + r"""
extern "C" __global__ void spin_more(int n, float a, const float* x, const float* y, float* z)
{ long long start = clock64(); while (clock64() - start < n + n * 3 / 100) { } }
extern "C" __global__ void saxpy_less(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n / 33 * 32) z[i] = a * x[i] + y[i]; }
"""
)
WITH_THREE_PERCENT: tuple[tuple[str, str, str, int, int, int], ...] = (
    ("spin 8k", "spin", "spin_more", 8_000, 33_792, 40), ("spin 90k", "spin", "spin_more", 90_000, 33_792, 30),
    ("saxpy 8M", "saxpy_less", "saxpy", MORE, MORE, 30),
)  # fmt: skip
"""Label, the faster kernel, the slower one, first argument, elements, how often."""
OTHERS = ("cupti", "nvbench cold", "nvbench batch", "do_bench", "do_bench_cudagraph", "events")
ALLOWED_SHARE, ALLOWED_US = 0.01, 0.1
"""How far a figure may be from Nsight Compute's less the constant, whichever is more."""


def opened(kind: str) -> GpuBackend:
    backend = open_backend(kind)
    if isinstance(backend, str):
        raise SystemExit(backend)
    return backend


def sampled(backend: GpuBackend, sources: Sequence[Source], n: int, elements: int) -> Samples:
    result = backend.time(timed_order(sources, n, elements))
    if not isinstance(result, Samples):
        raise SystemExit(f"not timed: {result}")
    return result


def once(kind: str, labels: Collection[str]) -> dict[str, list[Any]]:
    """Median and quartiles of every kernel of these labels, as this process sees them, and the method."""
    backend = opened(kind)
    answer = {}
    for label, name, n, elements in TABLE:
        if label not in labels:
            continue
        result = sampled(backend, [plain_source(TIMED, backend.arch, name)], n, elements)
        figure = summarize(net(result.programs[0], result.overhead_us))
        answer[label] = [figure.median, figure.q1, figure.q3, result.method]
    backend.close()
    return answer


def raced(backend: GpuBackend, sources: Sequence[Source], n: int, elements: int) -> tuple[str, float]:
    result = sampled(backend, sources, n, elements)
    own, rival = (net(column, result.overhead_us) for column in result.programs)
    speeds = (result.speeds_mhz[0], result.speeds_mhz[1])
    floor_us = launch_floor_us(result)
    verdict = compare(
        own, rival, floor_us=floor_us, clock_mhz=result.clock_mhz, speeds_mhz=speeds, method=result.method
    )
    return kind_of(type(verdict)), float(verdict.ratio or 0.0)


Races = dict[str, list[list[Any]]]


def races(kind: str, share: float, on_rows: Callable[[Races], None]) -> Races:
    """Rows of what is raced, its verdicts, and the ratios; `share` of the full number of races. `on_rows` sees each one more."""
    backend = opened(kind)
    rows: Races = {"itself": [], "planted": []}
    total: Counter[str] = Counter()
    for (label, name, n, elements), count in AGAINST_ITSELF:
        source = plain_source(TIMED, backend.arch, name)
        found = [raced(backend, [source, source], n, elements) for _ in range(max(1, round(count * share)))]
        total.update(what for what, _ in found)
        rows["itself"].append([label, Counter(what for what, _ in found), [ratio for _, ratio in found]])
        on_rows(rows)
    rows["itself"].append(["together", total, []])
    right: Counter[str] = Counter()
    for label, fast, slow, n, elements, count in WITH_THREE_PERCENT:
        sources = [plain_source(PLANTED, backend.arch, name) for name in (fast, slow)]
        found, ratios = Counter[str](), []
        for number in range(max(1, round(count * share))):
            turned = number % 2
            what, ratio = raced(backend, sources[::-1] if turned else sources, n, elements)
            found["found" if what == ("slower" if turned else "faster") else what] += 1
            ratios.append(1 / ratio if turned else ratio)
        right.update(found)
        rows["planted"].append([label, found, ratios])
        on_rows(rows)
    rows["planted"].append(["together", right, []])
    backend.close()
    return rows


def asked(arguments: Sequence[str], timeout_s: float) -> Any:
    """The JSON that a module of the tests prints last; a word on what went wrong in place of it."""
    try:
        done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=timeout_s)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"{' '.join(arguments)}: not done after {timeout_s:g} s"
    except (IndexError, ValueError):
        return f"{' '.join(arguments)}: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}"


def counted(state: str) -> dict[str, float] | str:
    """Nsight Compute's duration of each kernel, clocks and caches left alone; `state` as in `tests.gpu.oracle`."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return "ncu is not installed"
    command = [ncu, "--csv", "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off",
               "--metrics", "gpu__time_duration.sum", sys.executable, "-m", "tests.gpu.oracle", state]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "ncu: not done after 60 s"
    return durations_us(done.stdout) or f"ncu: {done.stdout[-300:]} {done.stderr[-300:]}"


def durations_us(text: str) -> dict[str, float]:
    """The mean duration of each row of the table from ncu's CSV; {} when it does not hold them all."""
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
    lines = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    values = [float(line["Metric Value"].replace(",", "")) * scale[line["Metric Unit"]] for line in lines]
    if len(values) != LAUNCHES * len(TABLE):
        return {}
    rounds = np.asarray(values).reshape(len(TABLE), LAUNCHES)
    # The first launch of a kernel fetches its code.
    return {row[0]: float(np.mean(times[1:])) for row, times in zip(TABLE, rounds, strict=True)}


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)] + [""]


def table(
    processes: Sequence[dict[str, list[Any]]], ncu: dict[str, dict[str, float]], theirs: dict[str, Any]
) -> list[str]:
    """Our figures and everybody's.

    A row is held against Nsight Compute on rotated buffers, a single launch against it after a sweep. The one constant is
    what it says of the empty kernel, less what we say.
    """
    known = "rotated" in ncu and "empty" in processes[0]
    constant = ncu["rotated"]["empty"] - float(np.median([one["empty"][0] for one in processes])) if known else 0.0
    body = []
    for label in processes[0]:
        medians = [process[label][0] for process in processes]
        ours = float(np.median(medians))
        spread = float(
            np.median([(process[label][2] - process[label][1]) / process[label][0] for process in processes])
        )
        quartiles = [float(np.median([process[label][i] for process in processes])) for i in (1, 2)]
        method = processes[0][label][3]
        state, off = "rotated" if method == "graph" else "swept", ""
        if state in ncu and known:
            away = ours - (ncu[state][label] - constant)
            within = abs(away) <= max(ALLOWED_US, ALLOWED_SHARE * ours)
            off = f"{away:+.3f} us, {away / ours:+.2%}{'' if within else ' (!)'}"
        body.append([
            label, method, f"{ours:.3f}", f"{quartiles[0]:.3f} to {quartiles[1]:.3f}", f"{spread:.2%}",
            f"{(max(medians) - min(medians)) / ours:.2%}",
            *(f"{ncu[name][label]:.3f}" if name in ncu else "" for name in ("rotated", "swept")), off,
            *(f"{theirs[label][name]:.2f}" if name in theirs.get(label, {}) else "" for name in OTHERS),
        ])  # fmt: skip
    heads = ["kernel", "method", "ours", "quartiles", "their distance", f"between {len(processes)} processes",
             "ncu, rotated", "ncu, swept", f"ours less (ncu less {constant:.3f} us)", *OTHERS]  # fmt: skip
    return markdown(heads, body)


def race_tables(rows: dict[str, list[list[Any]]]) -> list[str]:
    def lines(name: str) -> list[list[str]]:
        return [
            [label, ", ".join(f"{what} {count}" for what, count in sorted(found.items())),
             f"{min(ratios):.4f} to {max(ratios):.4f}" if ratios else ""]
            for label, found, ratios in rows[name]
        ]  # fmt: skip

    return [
        *markdown(["a kernel against itself", "verdicts", "ratios"], lines("itself")),
        *markdown(["3 % more work", "verdicts", "ratios"], lines("planted")),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda-core", choices=["cuda-core", "pycuda"])
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--races", type=int, default=100, help="of each kind; 0 for none")
    parser.add_argument("--alone", action="store_true", help="leave out the other tools")
    parser.add_argument(
        "--kernels", default=",".join(row[0] for row in TABLE), help="labels to be timed, with commas between"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--once", action="store_true", help="one process's figures, as JSON")
    options = parser.parse_args()
    labels = [label.strip() for label in options.kernels.split(",")]
    if unknown := set(labels) - {row[0] for row in TABLE}:
        parser.error(f"there is no kernel {sorted(unknown)[0]!r}: choose from {', '.join(row[0] for row in TABLE)}")
    if options.once:
        print(json.dumps(once(options.backend, labels)))
        return 0
    started = time.monotonic()
    remarks: list[str] = []
    parts: dict[str, list[str]] = {"figures": [], "races": []}

    def keep(part: str, lines: list[str]) -> None:
        parts[part] = lines
        if options.out is not None:
            tail = [
                *(f"- {remark}" for remark in remarks),
                f"- {options.backend}, {time.monotonic() - started:.0f} s in all",
            ]
            options.out.write_text("\n".join([*parts["figures"], *parts["races"], *tail]) + "\n")

    def kept(answer: Any) -> Any:
        if isinstance(answer, str):
            remarks.append(answer)
            return {}
        return answer

    if options.races:
        rows = races(options.backend, options.races / 100, lambda so_far: keep("races", race_tables(so_far)))
        keep("races", race_tables(rows))
        print("\n".join(parts["races"]), flush=True)
    myself = ["tests.bench.timing", "--once", "--backend", options.backend, "--kernels", options.kernels]
    processes: list[dict[str, list[Any]]] = []
    for _ in range(options.processes):
        if one := kept(asked(myself, 60)):
            processes.append(one)
            keep("figures", table(processes, {}, {}))
    ncu = {state: one for state in (() if options.alone else ("rotated", "swept")) if (one := kept(counted(state)))}
    theirs: dict[str, dict[str, float]] = {row[0]: {} for row in TABLE}
    if processes:
        keep("figures", table(processes, ncu, theirs))
    with tempfile.TemporaryDirectory() as folder:
        for mode in () if options.alone else (["plain"], ["nvbench", f"{folder}/nvbench.json"], ["cupti"]):
            for label, figures in kept(asked(["tests.gpu.oracle", *mode], 60)).items():
                theirs[label].update(figures)
    if processes:
        keep("figures", table(processes, ncu, theirs))
    print("\n".join([*parts["figures"], *(f"- {remark}" for remark in remarks)]))
    return 0 if processes else 1


if __name__ == "__main__":
    sys.exit(main())
