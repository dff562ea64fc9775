"""`dice-lsp dataset`: the CuKe records of this user or of a file, listed, exported, imported, and judged again."""

import argparse
import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from dice_lsp.command_line import UsageError, add_settings, settings_of, user_settings, write_whole
from dice_lsp.records import Faster, to_wire
from dice_lsp.wording import count, day

ORIGINS = ("editor", "generated", "imported")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `dice-lsp`."""
    parser = commands.add_parser("dataset", help="fills that were kept for fine-tuning: list, export, import, verify")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    listed = verbs.add_parser("list", help="the records, what they were measured at, and where they come from")
    _add_file(listed)
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    listed.set_defaults(run=_list)

    export = verbs.add_parser("export", help="write records into a file for others, or for a trainer")
    _add_file(export)
    export.add_argument("--to", type=Path, required=True, metavar="FILE", help="the file to write")
    export.add_argument(
        "--format",
        choices=("cuke", "published", "infilling"),
        default="cuke",
        help="cuke: JSON lines with all evidence (the default); published: a JSON list of prompt and response;"
        " infilling: a JSON list of prefix, middle and suffix",
    )
    export.add_argument(
        "--min-speedup",
        type=float,
        metavar="X",
        help="only records that are certainly X times as fast; the default is 2",
    )
    export.add_argument("--all", action="store_true", help="also what is not verified or not as fast")
    export.set_defaults(run=_export)

    taken = verbs.add_parser("import", help="add the records of a file, in any of these formats")
    taken.add_argument("file", type=Path)
    taken.add_argument("--into", type=Path, metavar="FILE", help="a file of records; the default is this user's")
    taken.add_argument("--licence", default="", metavar="SPDX", help="of the records, where the file does not say")
    taken.set_defaults(run=_import)

    verify = verbs.add_parser(
        "verify", help="judge every record again; what no longer holds goes into FILE.dropped.jsonl"
    )
    _add_file(verify)
    verify.add_argument(
        "--min-speedup",
        type=float,
        default=2.0,
        metavar="X",
        help="how fast a record must certainly be; the default is 2",
    )
    verify.add_argument("--jobs", type=int, default=1, metavar="N", help="records judged at a time")
    verify.add_argument("--dry-run", action="store_true", help="only tell, change no file")
    add_settings(verify)
    verify.set_defaults(run=_verify)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, help="a file of records; the default is this user's")


# The package of records loads the whole pipeline, so that it is imported by the verb that runs only.


def _list(arguments: argparse.Namespace) -> int:
    from dice_lsp.dataset.cuke import worth_keeping

    path, records = _records(arguments)
    if arguments.json:
        items = [
            {
                "number": number,
                "kernel": record.kernel,
                "origin": record.origin,
                "source": record.source,
                "licence": record.licence,
                "reference_kind": record.reference_kind,
                "verdict": to_wire(record)["verdict"],
                "comparison": to_wire(record)["comparison"],
                "evidence": to_wire(record)["evidence"],
                "kept_by_filter": worth_keeping(record),
            }
            for number, record in enumerate(records, 1)
        ]
        print(json.dumps({"file": str(path), "records": items}, indent=2))
        return 0
    console = Console()
    table = Table()
    for head in ("", "kernel", "faster", "verified on", "when", "licence", "origin"):
        table.add_column(head, justify="right" if not head else "left")
    for number, record in enumerate(records, 1):
        faster = record.comparison
        ratio = f"{faster.ratio:.2f}x ({faster.low:.2f} to {faster.high:.2f})" if isinstance(faster, Faster) else ""
        known = record.evidence
        table.add_row(
            str(number),
            escape(record.kernel or "a whole file"),
            ratio,
            escape(known.device) if known is not None and record.verified else "",
            day(known.when) if known is not None else "",
            escape(record.licence),
            escape(f"{record.origin} {record.source}".strip()),
        )
    if records:
        console.print(table)
    passing = sum(worth_keeping(record) for record in records)
    console.print(
        f"{count(len(records), 'record')} in {path}, {passing} of them verified and at least 2x as fast",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from dice_lsp.dataset.cuke import MIN_SPEEDUP, unique, worth_keeping
    from dice_lsp.dataset.exchange import exported

    if arguments.all and arguments.min_speedup is not None:
        raise UsageError("--all and --min-speedup contradict each other; give one of them")
    least = MIN_SPEEDUP if arguments.min_speedup is None else arguments.min_speedup
    path, records = _records(arguments)
    chosen = unique(record for record in records if arguments.all or worth_keeping(record, least))
    if not chosen:
        raise UsageError(
            f"none of the {count(len(records), 'record')} in {path} is verified and at least {least:g}x as fast: "
            "lower --min-speedup, or give --all"
            if records
            else f"{path} holds no records"
        )
    data, problems = exported(chosen, arguments.format)
    write_whole(arguments.to, data)
    _tell(problems)
    written = len(chosen) - len(problems)
    _say(f"{written} of {count(len(records), 'record')} written into {arguments.to}")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from dice_lsp.dataset import store
    from dice_lsp.dataset.cuke import CukeError, CukeRecord
    from dice_lsp.dataset.exchange import imported

    path = arguments.into or store.dataset_file()
    with _usage():
        found = list(imported(arguments.file, arguments.licence))
        records = [item for item in found if isinstance(item, CukeRecord)]
        problems = [item for item in found if isinstance(item, str)]
        if not found:
            raise CukeError(f"{arguments.file} holds no records: it is a JSON list or JSON lines of them")
        added = store.add(records, path)
    _tell(problems)
    _say(f"{count(added.new, 'record')} added to {path}, {added.known} were there already, {len(problems)} not taken")
    if added.new:
        _say("what they say of themselves is not proved here: run `dice-lsp dataset verify`")
    return 1 if not records else 0


def _verify(arguments: argparse.Namespace) -> int:
    from dice_lsp.dataset import store
    from dice_lsp.dataset.again import judge_again

    if arguments.jobs < 1:
        raise UsageError(f"--jobs {arguments.jobs} is not a number of records from 1 on")
    settings = settings_of(arguments, user_settings())
    path, records = _records(arguments)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("judging", total=len(records))
        outcomes = asyncio.run(
            judge_again(
                records,
                settings,
                min_speedup=arguments.min_speedup,
                jobs=arguments.jobs,
                on_outcome=lambda _: progress.advance(task),
            )
        )
    dropped = [outcome for outcome in outcomes if outcome.dropped]
    left: dict[str, int] = {}
    for number, outcome in enumerate(outcomes, 1):
        if outcome.dropped:
            _say(f"record {number}, {outcome.record.kernel or 'a whole file'}: {outcome.dropped}")
        elif outcome.left:
            left[outcome.left] = left.get(outcome.left, 0) + 1
    for reason, times in left.items():
        _say(f"{count(times, 'record')}: {reason}")
    if not arguments.dry_run:
        with _usage():
            store.settle(path, dict(zip(records, outcomes, strict=True)))
    gone = f", {len(dropped)} no longer: they are in {store.dropped_file(path)}" if dropped else ""
    if dropped and arguments.dry_run:
        gone = f", {len(dropped)} no longer: without --dry-run they are moved into {store.dropped_file(path)}"
    _say(f"still hold: {len(records) - len(dropped)} of {count(len(records), 'record')}{gone}")
    return 1 if dropped else 0


def _records(arguments: argparse.Namespace) -> tuple[Path, Sequence[Any]]:
    from dice_lsp.dataset import store
    from dice_lsp.dataset.cuke import read_records

    path = arguments.file or store.dataset_file()
    with _usage():
        return path, read_records(path)


@contextlib.contextmanager
def _usage() -> Any:
    """What is wrong with a file of records is said as a usage error is."""
    from dice_lsp.dataset.cuke import CukeError

    try:
        yield
    except CukeError as error:
        raise UsageError(str(error)) from error


def _tell(problems: Iterable[str]) -> None:
    """A sentence for each reason, with the first item that it holds for and how many more there are."""
    first: dict[str, str] = {}
    times: Counter[str] = Counter()
    for sentence in problems:
        reason = sentence.partition(": ")[2]
        first.setdefault(reason, sentence)
        times[reason] += 1
    for reason, sentence in first.items():
        _say(sentence + (f" (and {times[reason] - 1} more)" if times[reason] > 1 else ""))


def _say(sentence: str) -> None:
    Console(stderr=True).print(f"dice-lsp: {sentence}", markup=False, highlight=False, soft_wrap=True)
