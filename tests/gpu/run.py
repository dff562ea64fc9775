"""Everything a card is needed for, in one command: `python -m tests.gpu.run [--out FILE] [--ncu]`.

Runs the tests of this folder, times the known kernels with other tools beside ours, and writes the tables of
RESULTS.md. Exit code 0 when every test passed.
"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from dice_lsp.worker.device import open_backend
from tests.gpu.support import KINDS, rows

HEADS = {
    "loop": ("back end", "kernel", "verdict", "median", "against itself", "roof", "of it", "compile, verify, time"),
    "broken": ("back end", "a kernel that", "found", "where", "took", "next job", "took"),
    "stress": ("back end", "a kernel that", "found", "took", "next job", "took"),
    "isolation": ("back end", "confined by", "of the kernel", "open for writing"),
    "turns": ("back end", "alone, us", "beside a model that decodes, us", "steps of the model while the card was held"),
    "recovery": ("back end", "what", "ended after", "next kernel done after"),
    "same": ("back end", "kernel", "verdicts against itself", "ratios"),
    "placement": ("back end", "kernel beside its rival", "verdicts", "ratios", "medians us"),
    "planted": ("back end", "difference", "verdicts in both orders", "ratios"),
    "restored": ("back end", "kernel", "median us", "spread"),
    "busy": ("back end", "said while another process computes",),
    "sanitizer": ("kernel", "compute-sanitizer found", "seconds of each tool", "in all"),
    "model": ("what", "found"),
    "baselines": ("what was done", "said"),
    "hostile": ("back end", "expected", "given", "files", "took"),
    "fill": ("back end", "kernel", "verified", "the best", "ratio", "took"),
}  # fmt: skip


class Outcomes:
    """Counts what pytest reports."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
            if report.failed:
                self.failed.append(f"{report.nodeid}: {str(report.longrepr).splitlines()[-1][:300]}")


def table(heads: tuple[str, ...], body: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in body] + [""]


def others() -> dict[str, dict[str, float]]:
    """The figures of `tests.gpu.oracle`."""
    done = subprocess.run([sys.executable, "-m", "tests.gpu.oracle"], capture_output=True, text=True, timeout=120)
    try:
        answer: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        print(done.stderr[-2000:], file=sys.stderr)
        return {}
    return answer


def counted() -> dict[str, float]:
    """Nsight Compute's duration of each kernel, clocks and caches left alone, the L2 flushed before; {} without it."""
    from tests.gpu.test_timing import TABLE

    ncu = shutil.which("ncu")
    if ncu is None:
        return {}
    command = [ncu, "--csv", "--clock-control", "none", "--cache-control", "none", "--metrics", "gpu__time_duration.sum",
               "-k", "regex:^(saxpy|spin)$", sys.executable, "-m", "tests.gpu.oracle", "--once"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        return {}
    found = re.findall(r'"gpu__time_duration\.sum","(\w+)","([\d.,]+)"', done.stdout)
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
    values = [float(value.replace(",", "")) * scale.get(unit, float("nan")) for unit, value in found]
    if len(values) != 3 * len(TABLE):
        print(done.stdout[-1500:], done.stderr[-500:], file=sys.stderr)
        return {}
    return {row[0]: sorted(values[3 * i : 3 * i + 3])[1] for i, row in enumerate(TABLE)}


def about() -> list[str]:
    lines = [f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}"]
    for kind in KINDS:
        backend = open_backend(kind)
        if isinstance(backend, str):
            lines.append(f"- {kind}: {backend}")
            continue
        info = backend.info
        assert info is not None
        lines.append(f"- {info.name}, driver {info.driver}, CUDA {info.cuda}, {info.library}, {info.arch}")
        backend.close()
    for package in ("cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton", "numpy"):
        try:
            lines.append(f"- {package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            lines.append(f"- {package}: not installed")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("RESULTS.md"))
    parser.add_argument("--ncu", action="store_true", help="also count with Nsight Compute")
    parser.add_argument("rest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    lines = ["# Measured on a GPU", "", f"`python -m tests.gpu.run{' --ncu' if options.ncu else ''}`", "", *about(), ""]
    outcomes = Outcomes()
    folder = str(Path(__file__).parent)
    code = pytest.main([folder, "-q", "--tb=short", "--durations=8", *options.rest], plugins=[outcomes])
    lines += [f"**{', '.join(f'{count} {what}' for what, count in sorted(outcomes.counts.items()))}**", ""]
    lines += [f"- failed: {line}" for line in outcomes.failed]
    # Written after each step: what was measured stays even if a later tool takes too long.
    write(options.out, lines, {}, {})
    theirs = others() if list(rows("ours")) else {}
    write(options.out, lines, theirs, {})
    text = write(options.out, lines, theirs, counted() if options.ncu else {})
    print(text)
    return int(code)


def write(out: Path, first: list[str], theirs: dict[str, dict[str, float]], ncu: dict[str, float]) -> str:
    """RESULTS.md from what is known so far."""
    body = []
    for kind, label, *ours in rows("ours"):
        other = theirs.get(label, {})
        names = ("events", "do_bench", "do_bench_cudagraph")
        figures = [f"{other[name]:.2f}" if name in other else "" for name in names]
        body.append((kind, label, *ours, *figures, f"{ncu[label]:.2f}" if label in ncu else ""))
    lines = [*first, "", "## Times in us", ""]
    lines += table(
        ("back end", "kernel", "cold median", "spread", "hot", "gap", "floor", "events' cost", "launches", "sets",
         "plain events", "do_bench", "do_bench_cudagraph", "ncu"),
        body,
    )  # fmt: skip
    for name, heads in HEADS.items():
        if body := list(rows(name)):
            lines += [f"## {name.capitalize()}", "", *table(heads, body)]
    text = "\n".join(lines)
    out.write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
