"""The commands. Everything an editor can do, `infill` and `check` do without one.

Exit codes: 0 done, 1 done but nothing is verified (`infill`) or something is wrong (`check`), 2 a usage error, which is
one sentence on standard error. Results go to standard output, everything else to standard error.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dice_lsp import __version__, capture_command, check_command, dataset_command, eval_command
from dice_lsp.command_line import (
    UsageError,
    add_settings,
    read_document,
    settings_for,
    settings_of,
    user_settings,
    write_whole,
)
from dice_lsp.config import Settings, resolve
from dice_lsp.hint import candidate_title
from dice_lsp.json_output import check_schema, fill_document, fill_schema
from dice_lsp.pipeline import Engine, FillProgress
from dice_lsp.project_files import project_at
from dice_lsp.records import (
    CandidateReport,
    Compiled,
    Document,
    FillReport,
    Region,
    Timing,
    Verified,
)
from dice_lsp.settings_output import vscode_properties
from dice_lsp.source.embedded import replaced
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.positions import encode_text
from dice_lsp.source.python_calls import calls_of
from dice_lsp.source.selection import body_region, lines_region
from dice_lsp.wording import duration


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["train"]:
        # Its options are its own; this parser would take them for ours.
        return _train(argv[1:])
    arguments = _parser().parse_args(argv)
    level = logging.DEBUG if arguments.verbose > 1 else logging.INFO if arguments.verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        return int(arguments.run(arguments))
    except UsageError as error:
        print(f"dice-lsp: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dice-lsp", description="Fill CUDA kernels and see what each candidate is worth."
    )
    parser.add_argument("--version", action="version", version=f"dice-lsp {__version__}")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="log to standard error; twice for more")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="the language server, on standard input and output")
    serve.add_argument("--stdio", action="store_true", help="accepted for editors that always pass it")
    serve.set_defaults(run=_serve)

    infill = commands.add_parser("infill", help="fill a region of a file and judge each candidate")
    infill.add_argument("file", type=Path)
    place = infill.add_mutually_exclusive_group()
    place.add_argument("--kernel", help="fill the body of this kernel; may be left out when the file has one kernel")
    place.add_argument("--lines", metavar="FIRST:LAST", help="fill these lines, counted from 1")
    infill.add_argument("--candidates", type=int, metavar="N", help="number of candidates")
    infill.add_argument(
        "--apply", nargs="?", const="best", metavar="LABEL", help="write a verified candidate into the file"
    )
    infill.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(infill)
    infill.set_defaults(run=_infill)

    check_command.add_parser(commands)
    capture_command.add_parser(commands)

    worker = commands.add_parser("worker", help="the judge alone, speaking frames on standard input and output")
    worker.set_defaults(run=_worker)

    doctor = commands.add_parser("doctor", help="what is found on this machine, what is missing, what to run")
    doctor.add_argument(
        "file", nargs="?", type=Path, help="tell instead with which flags this file is compiled, and why"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(doctor)
    doctor.set_defaults(run=_doctor)

    model = commands.add_parser("model", help="checkpoints: list, pull, use")
    verbs = model.add_subparsers(required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="the checkpoints that are here")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    listed.set_defaults(run=_model_list)
    pull = verbs.add_parser("pull", help="download a checkpoint from Hugging Face; shows size and licence first")
    pull.add_argument("repository", help="for example DeadlyKitt3n/DICE-1.7B")
    pull.add_argument("--yes", action="store_true", help="do not ask")
    pull.set_defaults(run=_model_pull)
    use = verbs.add_parser("use", help="make a checkpoint the default of this user")
    use.add_argument("name", help="`tiny`, a folder, or the id of a pulled checkpoint")
    use.set_defaults(run=_model_use)

    dataset_command.add_parser(commands)
    eval_command.add_parser(commands)
    commands.add_parser(
        "train", help="train the small checkpoint (`train --help`) or tune any (`train sft --help`)", add_help=False
    )

    settings = commands.add_parser("settings", help="every setting with its default and meaning")
    settings.add_argument("--markdown", action="store_true", help="as the table of the README")
    settings.add_argument("--vscode", action="store_true", help="as the manifest of the VS Code extension has them")
    settings.set_defaults(run=_settings_table)

    schema = commands.add_parser("schema", help="JSON Schema of what --json prints")
    schema.add_argument("of", choices=("infill", "check"))
    schema.set_defaults(run=_schema)

    demo = commands.add_parser("demo", help="fill a few kernels with the shipped checkpoint")
    demo.set_defaults(run=_demo)
    return parser


def _region(document: Document, arguments: argparse.Namespace) -> Region:
    kernels = parse(document.text).kernels
    if arguments.lines is not None:
        first, _, last = arguments.lines.partition(":")
        if not first.isdigit() or not (last or first).isdigit():
            raise UsageError(f"--lines {arguments.lines} is not FIRST:LAST with two line numbers")
        region = lines_region(document, int(first), int(last or first))
        if isinstance(region, str):
            raise UsageError(region)
        return region
    if not kernels:
        where = "" if document.file_text is None else " in a plain string: f-strings and templates are not read"
        raise UsageError(f"{arguments.file} has no __global__ function with a body{where}")
    names = [kernel.id for kernel in kernels]
    name = arguments.kernel or (names[0] if len(names) == 1 else None)
    if name is None:
        raise UsageError(f"{arguments.file} has {len(names)} kernels; choose one with --kernel: {', '.join(names)}")
    found = [kernel for kernel in kernels if kernel.id == name] or [
        kernel for kernel in kernels if name in (kernel.name, kernel.qualified_name)
    ]
    if not found:
        raise UsageError(f"{arguments.file} has no kernel {name}; it has {', '.join(names)}")
    if len(found) > 1:
        raise UsageError(
            f"{arguments.file} has {len(found)} kernels called {name}: choose one of {', '.join(k.id for k in found)}"
        )
    (kernel,) = found
    return body_region(document, kernel)


def _serve(arguments: argparse.Namespace) -> int:
    from dice_lsp.server.app import serve_stdio

    return serve_stdio(user_settings())


def _worker(arguments: argparse.Namespace) -> int:
    from dice_lsp.worker.__main__ import main as worker_main

    worker_main()
    return 0


def _train(options: Sequence[str]) -> int:
    if options[:1] == ["sft"]:
        from dice_lsp.training.sft import main as tune

        return tune(options[1:])
    if options[:1] == ["rl"]:
        from dice_lsp.training.rl import main as reinforce

        return reinforce(options[1:])
    from dice_lsp.training.tiny import main as train_main

    train_main(options)
    return 0


def _infill(arguments: argparse.Namespace) -> int:
    settings, complaints = settings_for(arguments.file, arguments)
    for sentence in complaints:
        print(f"dice-lsp: {sentence}", file=sys.stderr)
    if arguments.candidates is not None:
        settings, complaints = resolve({"candidates": arguments.candidates}, settings)
        if complaints:
            raise UsageError(complaints[0])
    document = read_document(arguments.file)
    region = _region(document, arguments)
    report = asyncio.run(_fill_once(settings, region, str(arguments.file.resolve()), quiet=arguments.json))
    chosen = _choose(report, arguments.apply)
    if chosen is not None:
        filled = replaced(document, region.start, region.end, chosen.candidate.text)
        if filled is None:
            raise UsageError(f"candidate {chosen.label} cannot stand in that string: it has the quotes that end it")
        write_whole(arguments.file, lambda there: encode_text(filled, there))
    applied = None if chosen is None else chosen.label
    assert region.kernel is not None
    if arguments.json:
        spec = launch_spec(
            document.text,
            region.kernel,
            parse(document.text),
            calls=calls_of(document),
            project=project_at(str(arguments.file.resolve()), settings),
            path=str(arguments.file.resolve()),
        )
        print(json.dumps(fill_document(arguments.file, region, spec, report, applied), indent=2))
    else:
        console = Console()
        console.print(_fill_table(region.kernel.name, report))
        if report.reason:
            console.print(report.reason, markup=False)
        best = report.candidates[0] if report.candidates else None
        if best is not None and isinstance(best.verdict, Verified):
            shown = "applied" if applied == best.label else "add --apply to write it into the file"
            console.print(f"\n[bold]{best.label}[/bold] ({shown}):")
            console.print(best.candidate.text.strip("\r\n"), markup=False, highlight=False)
        if applied:
            console.print(f"{applied} was written into {arguments.file}", markup=False)
    return 0 if any(isinstance(item.verdict, Verified) for item in report.candidates) else 1


async def _fill_once(settings: Settings, region: Region, path: str, *, quiet: bool) -> FillReport:
    engine = Engine(settings)
    console = Console(stderr=True)
    try:
        if quiet or not console.is_terminal:
            return await engine.fill(region, path)
        with console.status("starting") as status:

            def tell(progress: FillProgress) -> None:
                best = progress.report.candidates[:1]
                said = f"{progress.message}" + (f", best so far: {candidate_title(best[0])}" if best else "")
                status.update(escape(said))

            return await engine.fill(region, path, on_progress=tell)
    finally:
        await engine.close()


def _choose(report: FillReport, label: str | None) -> CandidateReport | None:
    """The candidate to apply. Only a verified one is ever written."""
    if label is None:
        return None
    if label == "best":
        return next((item for item in report.candidates if isinstance(item.verdict, Verified)), None)
    chosen = next((item for item in report.candidates if item.label == label.upper()), None)
    if chosen is None:
        raise UsageError(
            f"there is no candidate {label}; there are {', '.join(c.label for c in report.candidates) or 'none'}"
        )
    if not isinstance(chosen.verdict, Verified):
        raise UsageError(f"candidate {chosen.label} is not verified and is not written")
    return chosen


def _fill_table(title: str, report: FillReport) -> Table:
    table = Table(title=title, title_justify="left")
    for head in ("", "worth", "regs", "occ", "time"):
        table.add_column(head)
    for item in report.candidates:
        worth = candidate_title(item).removeprefix(item.label).strip()
        registers = occupancy = ""
        if isinstance(item.build, Compiled):
            registers, occupancy = str(item.build.registers), f"{item.build.occupancy:.0%}"
            worth = worth.removesuffix(f"  {registers} regs")
        time = duration(item.timing.median_us) if isinstance(item.timing, Timing) else ""
        table.add_row(item.label, escape(worth), registers, occupancy, time)
    if report.decode is not None:
        decode = report.decode
        table.caption = (
            f"{decode.tokens} tokens in {decode.elapsed_ms:.0f} ms, {decode.forwards} forwards of {decode.checkpoint}"
        )
        table.caption_justify = "left"
    return table


def _doctor(arguments: argparse.Namespace) -> int:
    from dice_lsp.doctor import examine

    if arguments.file is not None:
        return _doctor_of_file(arguments)
    findings = asyncio.run(examine(settings_of(arguments, user_settings())))
    if arguments.json:
        print(json.dumps({"findings": [attrs.asdict(finding) for finding in findings]}, indent=2))
    else:
        table = Table(show_header=True)
        for head in ("", "what", "found", "next step"):
            table.add_column(head)
        signs = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "missing": "[red]missing[/red]"}
        for finding in findings:
            table.add_row(signs[finding.state], escape(finding.what), escape(finding.found), escape(finding.next_step))
        Console().print(table)
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def _doctor_of_file(arguments: argparse.Namespace) -> int:
    """The flags of one file: exit code 1 when something of them could not be read or taken."""
    from dice_lsp.doctor import examine_flags

    if not arguments.file.is_file():
        raise UsageError(f"{arguments.file} is not a file")
    settings, complaints = settings_for(arguments.file, arguments)
    told = asyncio.run(examine_flags(str(arguments.file.resolve()), settings))
    notes = [*complaints, *told.notes]
    if arguments.json:
        print(json.dumps(attrs.asdict(told) | {"file": str(arguments.file), "notes": notes}, indent=2))
        return 1 if notes else 0
    console = Console()

    def say(sentence: str) -> None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    say(f"{arguments.file}: {told.origin or 'no flags of a build; those of the settings only'}")
    if told.flags:
        table = Table()
        for head in ("flag", "from", "what becomes of it"):
            table.add_column(head, overflow="fold")
        for row in told.flags:
            table.add_row(escape(row.written), escape(row.source), escape(row.fate))
        console.print(table)
    say(f"compiled for {told.architecture} with: {' '.join(told.given) or 'no flags'}")
    for sentence in notes:
        say(sentence)
    return 1 if notes else 0


def _model_list(arguments: argparse.Namespace) -> int:
    from dice_lsp.diffusion.registry import list_checkpoints

    if arguments.json:
        models = [attrs.asdict(found) | {"path": str(found.path)} for found in list_checkpoints()]
        print(json.dumps({"models": models}, indent=2))
        return 0
    current = user_settings().model
    table = Table()
    for head in ("", "name", "parameters", "size", "where"):
        table.add_column(head)
    for found in list_checkpoints():
        size = f"{found.size_bytes / 2**20:.1f} MiB"
        table.add_row("*" if found.name == current else "", found.name, found.parameters, size, str(found.path))
    Console().print(table)
    return 0


def _model_pull(arguments: argparse.Namespace) -> int:
    from dice_lsp.diffusion.checkpoint import CheckpointError
    from dice_lsp.diffusion.registry import pull

    def confirm(description: str) -> bool:
        print(description, file=sys.stderr)
        if arguments.yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("nothing was downloaded: add --yes to agree without being asked")
        return input("Download it? [y/N] ").strip().lower() in ("y", "yes")

    try:
        path = pull(arguments.repository, confirm)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    if path is None:
        print("nothing was downloaded", file=sys.stderr)
        return 1
    print(f"{path}\nnext: dice-lsp model use {arguments.repository}")
    return 0


def _model_use(arguments: argparse.Namespace) -> int:
    from dice_lsp.diffusion.checkpoint import CheckpointError
    from dice_lsp.diffusion.registry import use

    try:
        use(arguments.name)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    print(f"{arguments.name} is now the default; a running server takes it at its next start")
    return 0


def settings_markdown() -> str:
    """The README's table of settings."""
    lines = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, default, doc in _setting_rows():
        lines.append(f"| `{name}` | `{default}` | {doc} |")
    return "\n".join(lines)


def _setting_rows() -> list[tuple[str, str, str]]:
    return [(field.name, _shown(field.default), field.metadata["doc"]) for field in attrs.fields(Settings)]


def _settings_table(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        print(settings_markdown())
        return 0
    if arguments.vscode:
        print(json.dumps(vscode_properties(), indent=2, ensure_ascii=False))
        return 0
    table = Table()
    for head in ("setting", "default", "meaning"):
        table.add_column(head)
    for row in _setting_rows():
        table.add_row(*map(escape, row))
    Console().print(table)
    return 0


def _shown(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _schema(arguments: argparse.Namespace) -> int:
    print(json.dumps(fill_schema() if arguments.of == "infill" else check_schema(), indent=2))
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    """Fill the bodies of the demo kernels; 0 if each has a verified candidate."""
    return asyncio.run(_demo_all())


async def _demo_all() -> int:
    console = Console()
    engine = Engine(user_settings())
    unfilled = []
    try:
        for path in sorted((Path(__file__).parent / "demo").glob("*.cu")):
            document = read_document(path)
            kernel = parse(document.text).kernels[0]
            # The body is taken out before the model is asked, so that nothing of the answer is in the question.
            emptied = attrs.evolve(
                document, text=document.text[: kernel.body_start] + "\n" + document.text[kernel.body_end :]
            )
            region = body_region(emptied, parse(emptied.text).kernels[0])
            report = await engine.fill(region, str(path))
            console.print(_fill_table(f"{path.name}: the body of {kernel.name}", report))
            best = report.candidates[0] if report.candidates else None
            if best is None or not isinstance(best.verdict, Verified):
                unfilled.append(kernel.name)
            else:
                console.print(f"{best.label}:", markup=False)
                console.print(best.candidate.text.strip("\n"), markup=False, highlight=False)
            if report.reason:
                console.print(report.reason, markup=False)
            console.print()
    finally:
        await engine.close()
    if unfilled:
        console.print(f"no verified candidate for {', '.join(unfilled)}")
    return 1 if unfilled else 0


if __name__ == "__main__":
    sys.exit(main())
