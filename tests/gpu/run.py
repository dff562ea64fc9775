"""The tests that need a card, in one command: `python -m tests.gpu.run [--out FILE]`.

Runs the tests of this folder and writes the tables of RESULTS.md; the table of times beside those of other tools is
made by `python -m tests.bench.timing`. Exit code 0 when every test passed.
"""

import argparse
import platform
import sys
from collections import defaultdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from dice_lsp.worker.device import open_backend
from tests.gpu.support import KINDS, rows

HEADS = {
    "ours": ("back end", "kernel", "cold median us", "spread", "hot", "gap", "floor", "timing adds", "launches", "sets"),
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
    "capture": ("back end", "recorded and run again", "cases", "held against"),
    "decode": ("what", "found", "beside it"),
    "dataset": ("a record", "found"),
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
    parser.add_argument("rest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    lines = ["# Measured on a GPU", "", "`python -m tests.gpu.run`", "", *about(), ""]
    outcomes = Outcomes()
    folder = str(Path(__file__).parent)
    code = pytest.main([folder, "-q", "--tb=short", "--durations=8", *options.rest], plugins=[outcomes])
    lines += [f"**{', '.join(f'{count} {what}' for what, count in sorted(outcomes.counts.items()))}**", ""]
    lines += [f"- failed: {line}" for line in outcomes.failed]
    text = write(options.out, lines)
    print(text)
    return int(code)


def write(out: Path, first: list[str]) -> str:
    """RESULTS.md from what was measured."""
    lines = [*first, ""]
    for name, heads in HEADS.items():
        if body := list(rows(name)):
            lines += [f"## {name.capitalize()}", "", *table(heads, body)]
    text = "\n".join(lines)
    out.write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
