"""How long a user of each editor waits: `python -m tests.bench.editors [--runs 20]`.

Drives the real editors with the real server and checkpoint, and writes docs/latency.md. Nothing is asserted, since
machines differ.
"""

import argparse
import os
import platform
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.nvim.latency import measure_nvim
from tests.vscode.editor import ROOT, run_script, workspace

PAGE = ROOT / "docs/latency.md"
RUNS = 20
KINDS = ("key press to menu", "accept to text", "save to first hint")
Times = Mapping[str, Sequence[float]]


def measure_vscode(runs: int) -> Times:
    """Milliseconds of each run, in the page that the user looks at."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = workspace(folder, {"saxpy.cu": ROOT / "tests/data/saxpy.cu"})["saxpy.cu"]
        seen = run_script(
            folder, "latency", open=[str(file)], settings={"dice.candidates": 1}, runs=runs, deadline_s=1500.0
        )
    times: Times = seen.steps["times_ms"]
    return times


def table(times: Mapping[str, Times]) -> list[str]:
    lines = [
        "| editor | from | runs | lower quartile | median | upper quartile | worst |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for editor, kinds in times.items():
        for kind in KINDS:
            values = kinds[kind]
            low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
            figures = " | ".join(f"{value:.{int(value < 10)}f} ms" for value in (low, middle, high, max(values)))
            lines.append(f"| {editor} | {kind} | {len(values)} | {figures} |")
    return lines


def machine() -> str:
    """The machine in words that a reader can compare with their own."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    name = re.sub(r"\s*(\(R\)|\(TM\)|@.*)", "", model[1]).strip() if model else platform.machine()
    return f"{len(os.sched_getaffinity(0))} cores ({name}), no GPU used"


def page(times: Mapping[str, Times], when: datetime, runs: int, load: float) -> str:
    return "\n".join(
        [
            "# How long a user waits in the editors",
            "",
            f"Measured on {when:%Y-%m-%d} with {machine()}, Linux {platform.release().split('-')[0]}, Python "
            f"{platform.python_version()}; load before the start {load:.1f}.",
            "",
            f"Command: `python -m tests.bench.editors --runs {runs}`. It drives the real VS Code 1.100.3 in Chromium and the",
            "real Neovim 0.11.4, each with the real server, the shipped checkpoint, and `tests/data/saxpy.cu`.",
            "",
            *table(times),
            "",
            "- **key press to menu**: lines of a kernel are selected; from `Ctrl+.` (`gra` in Neovim) until the menu shows",
            "  *DICE: fill selection*.",
            "- **accept to text**: the list with its diff is open; from Enter until the file shows the candidate and the diff",
            "  is closed (in Neovim: until the buffer has changed). The server compares the text with what it meant after that.",
            "- **save to first hint**: the kernel was changed; from saving until its line shows figures of the new text",
            "  (registers). It is compiled anew each time; the verdict comes later, as the kernel's runs take.",
            "",
            "VS Code's times are taken in the page, at the change of the screen that shows the result; the browser draws on the",
            "same cores as the server compiles on. The server's own answers are measured by `python -m tests.bench.latency`.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--print", action="store_true", help="print the page and leave docs/latency.md as it is")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    times = {"VS Code 1.100.3": measure_vscode(given.runs), "Neovim 0.11.4": measure_nvim(given.runs)}
    text = page(times, datetime.now(UTC), given.runs, load)
    if not given.print:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
