"""How good the fills are: `python -m tests.fill [--set textbook|frozen] [--candidates 8] [--json FILE]`.

Every task is a `.cu` file with one kernel and its reference. The body is taken out, the shipped checkpoint fills it, and
the worker judges each candidate on the host. A task is solved when a candidate is verified. Fills that compile but are
wrong are counted, and every verified fill is judged once more with other inputs: one that fails then was a wrong kernel
shown as right, the worst bug there is.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from dice_lsp.config import Settings
from dice_lsp.pipeline import Engine, splice
from dice_lsp.records import (
    Cheating,
    Compiled,
    CompileFailed,
    Document,
    NotCompiled,
    Region,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)
from dice_lsp.training.fill_tasks import file_task

DATA = Path(__file__).parent / "data"


@attrs.frozen
class TaskResult:
    """One task: how many candidates ended how, and how long the fill took."""

    task: str
    verified: int
    first_verified: bool
    compiled: int
    wrong: int
    unsafe: int
    unverified: int
    no_compile: int
    refused_text: int
    overturned: int
    """Verified candidates that a second judgement with other inputs refused."""
    elapsed_s: float
    model_s: float
    verdict: str


def emptied_region(path: Path) -> Region:
    """The task of a file: its kernel's body, taken out of the text."""
    return file_task(path).region()


async def run_task(engine: Engine, path: Path, candidates: int) -> TaskResult:
    """Fill one task and judge it, and judge what is verified once more with the inputs of another seed."""
    other = attrs.evolve(engine.settings, seed=engine.settings.seed + 1000)
    region = emptied_region(path)
    started = time.monotonic()
    report = await engine.fill(region, str(path), candidates=candidates)
    elapsed_s = time.monotonic() - started
    kinds = [type(item.verdict) for item in report.candidates if isinstance(item.build, Compiled)]
    overturned = 0
    for item in report.candidates:
        if isinstance(item.verdict, Verified):
            text, kernel = splice(region, item.candidate.text)
            document = Document(path.as_uri(), 1, text)
            (second,) = await engine.check(document, str(path), kernels=[kernel.name], settings=other)
            overturned += not isinstance(second.verdict, Verified)
    best = report.candidates[0] if report.candidates else None
    return TaskResult(
        path.stem,
        kinds.count(Verified),
        best is not None and isinstance(best.verdict, Verified),
        len(kinds),
        kinds.count(Wrong),
        kinds.count(Unsafe) + kinds.count(Cheating),
        kinds.count(Unverified),
        sum(isinstance(item.build, CompileFailed) for item in report.candidates),
        sum(isinstance(item.build, NotCompiled) for item in report.candidates),
        overturned,
        elapsed_s,
        report.decode.elapsed_ms / 1000 if report.decode else 0.0,
        report.reason or (type(best.verdict).__name__ if best else "nothing"),
    )


async def run_set(name: str, candidates: int, seed: int = 0) -> list[TaskResult]:
    """Every task of a folder, one after another as a user would."""
    engine = Engine(Settings(backend="host", seed=seed))
    try:
        await engine.start()
        return [await run_task(engine, path, candidates) for path in sorted((DATA / name).glob("*.cu"))]
    finally:
        await engine.close()


def print_table(name: str, results: list[TaskResult]) -> None:
    table = Table(title=f"{name}: one body a task, filled by the shipped checkpoint, judged on the host")
    for head in (
        "task",
        "verified",
        "compile",
        "wrong",
        "unsafe",
        "unverified",
        "no compile",
        "overturned",
        "fill s",
        "model s",
    ):
        table.add_column(head, justify="left" if head == "task" else "right")
    for item in results:
        numbers = (
            item.verified,
            item.compiled,
            item.wrong,
            item.unsafe,
            item.unverified,
            item.no_compile,
            item.overturned,
        )
        table.add_row(item.task, *map(str, numbers), f"{item.elapsed_s:.1f}", f"{item.model_s:.1f}")
    console = Console(width=140)
    console.print(table)
    solved = sum(item.verified > 0 for item in results)
    console.print(f"{name}: {solved} of {len(results)} tasks have a verified candidate")
    refused = sum(item.wrong + item.unsafe for item in results)
    console.print(
        f"fills that compile: {sum(item.compiled for item in results)}, of them wrong or unsafe and refused: {refused}"
    )
    console.print(f"verified fills that a second judgement overturned: {sum(item.overturned for item in results)}")
    times = [item.elapsed_s for item in results]
    console.print(
        f"time of a fill: median {statistics.median(times):.1f} s, from {min(times):.1f} to {max(times):.1f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=("textbook", "frozen"), action="append")
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {
        name: asyncio.run(run_set(name, arguments.candidates, arguments.seed))
        for name in arguments.set or ("textbook", "frozen")
    }
    for name, results in found.items():
        print_table(name, results)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({name: [attrs.asdict(item) for item in items] for name, items in found.items()})
        )
    overturned = sum(item.overturned for results in found.values() for item in results)
    unsolved = sum(item.verified == 0 for item in found.get("textbook", []))
    return 1 if overturned or unsolved else 0


if __name__ == "__main__":
    sys.exit(main())
