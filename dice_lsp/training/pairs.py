"""Records of generated kernels whose fast body was measured against their plain one.

    python -m dice_lsp.training.pairs --count 500 --out pairs.jsonl

Each pair is verified by the worker and both bodies are timed in turns on the GPU; what is not at least `--min-speedup`
times as fast for certain is not kept. Without a GPU no speed-up can be known, so nothing is kept. `--check` verifies all
bodies of some pairs of every family instead, on whatever this machine has.
"""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from dice_lsp.command_line import UsageError, add_settings, settings_of, user_settings
from dice_lsp.config import Settings
from dice_lsp.dataset.cuke import CukeRecord, make_record, unique, worth_keeping, write_records
from dice_lsp.records import Verified
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.training.evaluation import kind_of
from dice_lsp.training.families import FAMILIES, HELD_OUT_SEED, Pair, make_pair
from dice_lsp.training.judging import Judges, job_of, judged_and_timed, judges

LICENCE = "MIT"
"""The generator's own: what it writes is part of this project."""
TRIES = 4
"""Pairs that are drawn for each record that is wanted, at most."""


@frozen
class Measured:
    """What became of the pairs that were drawn."""

    records: tuple[CukeRecord, ...]
    drawn: int
    ends: Counter[str]
    """How many bodies ended how: `kept`, `not fast enough`, or a kind of `evaluation.KINDS`."""


async def measure(
    pool: Judges,
    settings: Settings,
    count: int,
    first_seed: int,
    min_speedup: float,
    families: Sequence[str] | None = None,
) -> Measured:
    """At least `count` records, if as many can be had: of each pair every fast body that is worth keeping.

    Pairs are judged side by side, as many as there are workers, and come out in the order of their seeds.
    """
    kept: list[CukeRecord] = []
    ends: Counter[str] = Counter()
    seed, last = first_seed, min(first_seed + TRIES * count, HELD_OUT_SEED)
    while len(kept) < count and seed < last:
        seeds = range(seed, min(last, seed + max(4, count - len(kept))))
        pairs = [make_pair(one, family=families[one % len(families)] if families else None) for one in seeds]
        for one, found in zip(
            seeds, await asyncio.gather(*(_bodies(pool, settings, pair) for pair in pairs)), strict=True
        ):
            for end, record in found:
                if record is not None and not worth_keeping(record, min_speedup):
                    end, record = "not fast enough", None
                ends["kept" if record is not None else end] += 1
                kept += [record] if record is not None else []
            seed = one + 1
    return Measured(tuple(unique(kept)), seed - first_seed, ends)


async def _bodies(pool: Judges, settings: Settings, pair: Pair) -> list[tuple[str, CukeRecord | None]]:
    """How each fast body ended, and its record if it is verified."""
    found: list[tuple[str, CukeRecord | None]] = []
    for fast in pair.fast:
        text = pair.file(fast.body)
        job = job_of(text, f"/generated/{pair.name}.cu", pair.kernel, settings)
        judged = await judged_and_timed(pool, job, pair.file(pair.plain))
        if not isinstance(judged.verdict, Verified):
            found.append((kind_of(judged), None))
            continue
        model = parse(text)
        record = make_record(
            pair.region(), fast.body, judged, launch_spec(text, model.kernels[0], model), origin="generated",
            source=pair.name, licence=LICENCE, rival=pair.plain,
        )  # fmt: skip
        found.append(("not recorded", None) if isinstance(record, str) else ("verified", record))
    return found


async def check(pool: Judges, settings: Settings, first_seed: int, per_family: int) -> list[str]:
    """One line for each body, of `per_family` pairs of every family, that is not verified here."""

    async def one(pair: Pair, what: str, body: str) -> str | None:
        job = job_of(pair.file(body), f"/generated/{pair.name}.cu", pair.kernel, settings)
        judged = await pool.judge(job)
        if isinstance(judged.verdict, Verified):
            return None
        return f"{pair.name}, {what}: {kind_of(judged)}, {judged.verdict}"

    pairs = [make_pair(first_seed + place, family=name) for name in FAMILIES for place in range(per_family)]
    bodies = [(pair, "plain", pair.plain) for pair in pairs]
    bodies += [(pair, fast.technique, fast.body) for pair in pairs for fast in pair.fast]
    return [line for line in await asyncio.gather(*(one(*body) for body in bodies)) if line is not None]


async def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    workers = arguments.workers or len(os.sched_getaffinity(0))
    async with judges(settings, workers) as pool:
        if arguments.check:
            faults = await check(pool, settings, arguments.seed, arguments.check)
            print("\n".join(faults) or f"every body is verified on {pool.device}")
            return 1 if faults else 0
        if not pool.times:
            why = "with --no-benchmark" if pool.on_gpu else "without a GPU"
            raise UsageError(
                f"no speed-up can be measured {why}, so no pair is kept: run this where times are measured"
            )
        found = await measure(pool, settings, arguments.count, arguments.seed, arguments.min_speedup, arguments.family)
    write_records(arguments.out, found.records)
    ends = ", ".join(f"{number} {end}" for end, number in found.ends.most_common())
    print(f"{len(found.records)} records of {found.drawn} pairs in {arguments.out}; bodies: {ends}")
    return 0 if found.records else 1


def main(argv: Sequence[str] | None = None) -> int:
    """The command `python -m dice_lsp.training.pairs`."""
    parser = argparse.ArgumentParser(prog="python -m dice_lsp.training.pairs", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, metavar="N", help="records to make")
    parser.add_argument("--out", type=Path, default=Path("pairs.jsonl"), metavar="FILE")
    parser.add_argument("--min-speedup", type=float, default=2.0, metavar="X", help="least measured speed-up")
    parser.add_argument("--family", action="append", choices=[n for n, f in FAMILIES.items() if not f.held_out])
    parser.add_argument("--workers", type=int, metavar="N", help="judges at work at once (default: one for each core)")
    parser.add_argument("--check", type=int, metavar="N", help="verify N pairs of every family here, and keep nothing")
    add_settings(parser)
    arguments = parser.parse_args(argv)
    arguments.seed = arguments.seed or 0
    try:
        return asyncio.run(_run(arguments, settings_of(arguments, user_settings())))
    except UsageError as error:
        print(f"dice-lsp: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
