"""`dice-lsp check`: the kernels of files compiled, verified and timed, and held against a baseline file if one is given."""

import argparse
import asyncio
import contextlib
import glob
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dice_lsp import baseline as baselines
from dice_lsp.checked import Checked, CheckedFile, CheckedKernel, figures_problem, held_against_baseline
from dice_lsp.command_line import (
    UsageError,
    add_settings,
    read_bytes,
    read_document,
    settings_for,
    settings_of,
    user_settings,
    write_whole,
)
from dice_lsp.config import Settings
from dice_lsp.hint import kernel_label
from dice_lsp.json_output import check_document
from dice_lsp.pipeline import Engine, may_be_sanitized, with_sanitized
from dice_lsp.records import (
    Baseline,
    Compiled,
    CompileFailed,
    Document,
    Kernel,
    KernelReport,
    NotCompared,
    NotCompiled,
    Sanitized,
    Unverified,
)
from dice_lsp.report_formats import junit, place, repository_root, sarif
from dice_lsp.source.kernels import parse
from dice_lsp.wording import count

SUFFIXES = (".cu", ".cuh")
FORMATS = ("text", "json", "sarif", "junit")
_BUILD_FOLDERS = {"build", "dist", "node_modules", "venv"}
_BUILD_MARKS = ("CMakeCache.txt", "CACHEDIR.TAG", "pyvenv.cfg")
"""Files that only a folder has whose content was made by a tool."""
CI_WIDTH = 120


@frozen
class _Source:
    path: Path
    """As the user named it."""
    document: Document
    kernels: tuple[Kernel, ...]
    key: str
    """Its name in the baseline files; empty when none is used."""
    settings: Settings
    complaints: tuple[str, ...]
    """What could not be taken from the settings file of its workspace."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `dice-lsp`."""
    parser = commands.add_parser("check", help="compile, verify and time the kernels of files, against a baseline")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a file, a folder (its .cu and .cuh files, those of build folders not), or a pattern"
    )  # fmt: skip
    parser.add_argument("--kernel", action="append", help="check only this kernel; may be given more than once")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="fail for kernels that are worse than in this file"
    )
    parser.add_argument(
        "--save-baseline", type=Path, metavar="FILE", help="write the kernels into this file, to be held against later"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="also run compute-sanitizer on the kernels that are verified on a GPU"
    )
    parser.add_argument("--format", choices=FORMATS, help="what to print; the default is text")
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the report there, and the text to standard output"
    )
    add_settings(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check, print, save; returns the exit code."""
    style = _format(arguments)
    paths = find_files(arguments.files)
    settings = settings_of(arguments, user_settings())
    held = None if arguments.baseline is None else _load(arguments.baseline)
    _saved_before(arguments.save_baseline)
    sources = [_source(path, arguments) for path in paths]
    for wanted in arguments.kernel or ():
        if not any(wanted in (kernel.id, kernel.name) for source in sources for kernel in source.kernels):
            raise UsageError(f"no kernel {wanted} in {', '.join(str(path) for path in paths)}")
    checked, made = asyncio.run(_check(settings, sources, held, arguments))
    if arguments.save_baseline is not None:
        checked = _save(arguments.save_baseline, sources, checked, made)
    _print(checked, style, arguments)
    return checked.exit_code


def find_files(names: Iterable[str]) -> tuple[Path, ...]:
    """The files that the user means, each once, in the order given; those of a folder sorted."""
    found: dict[Path, Path] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            below = list(_cuda_files(path))
            if not below:
                raise UsageError(f"{name} holds no {' or '.join(SUFFIXES)} file; name a file or another folder")
        elif not path.exists() and glob.has_magic(name):
            below = [Path(item) for item in sorted(glob.glob(name, recursive=True)) if Path(item).is_file()]
            if not below:
                raise UsageError(f"nothing matches {name}")
        else:
            below = [path]
        for item in below:
            found.setdefault(item.resolve(), item)
    return tuple(found.values())


def _cuda_files(folder: Path) -> Iterable[Path]:
    for place_, folders, files in os.walk(folder):
        here = Path(place_)
        folders[:] = sorted(name for name in folders if not _is_made_by_a_tool(here / name))
        yield from (here / name for name in sorted(files) if name.endswith(SUFFIXES))


def _is_made_by_a_tool(folder: Path) -> bool:
    name = folder.name
    if name.startswith((".", "cmake-build-")) or name in _BUILD_FOLDERS:
        return True
    return any((folder / mark).exists() for mark in _BUILD_MARKS)


def _format(arguments: argparse.Namespace) -> str:
    if arguments.json and arguments.format not in (None, "json"):
        raise UsageError(f"--json and --format {arguments.format} contradict each other; give one of them")
    return "json" if arguments.json else arguments.format or "text"


def _source(path: Path, arguments: argparse.Namespace) -> _Source:
    document = read_document(path)
    key = ""
    for file in (arguments.baseline, arguments.save_baseline):
        if file is not None:
            key = _key(path, file)
    return _Source(path, document, tuple(parse(document.text).kernels), key, *settings_for(path, arguments))


# Baseline files


def _key(path: Path, baseline_file: Path) -> str:
    """A source file's name in a baseline file: relative to its folder, so that it means the same in every checkout."""
    folder = baseline_file.resolve().parent
    if not path.resolve().is_relative_to(folder):
        raise UsageError(
            f"{path} does not lie below the folder of {baseline_file}; keep that file at the top of the repository"
        )
    return path.resolve().relative_to(folder).as_posix()


def _load(path: Path) -> dict[str, dict[str, Baseline]]:
    if not path.exists():
        raise UsageError(f"{path} does not exist; make it with --save-baseline {path}")
    try:
        return baselines.load(read_bytes(path).decode("utf-8"))
    except (baselines.BaselineError, UnicodeDecodeError) as error:
        told = str(error) if isinstance(error, baselines.BaselineError) else "it is not UTF-8 text"
        raise UsageError(f"{path}: {told}") from error


def _saved_before(path: Path | None) -> dict[str, dict[str, Baseline]]:
    """What the file to be written holds now. Asked before the check too, which is long, so that it is not in vain."""
    if path is None:
        return {}
    if not path.resolve().parent.is_dir():
        raise UsageError(f"{path} cannot be written: its folder does not exist")
    try:
        return _load(path) if path.exists() else {}
    except UsageError as error:
        raise UsageError(f"{error}, after you have deleted or repaired this one") from error


def _save(
    path: Path,
    sources: Sequence[_Source],
    checked: Checked,
    made: Mapping[tuple[str, str], Baseline | str],
) -> Checked:
    """Write the baselines that were made into `path`; the outcome says what is in it now and what is not."""
    # Read again: the check took its time, and another one may have saved other files meanwhile.
    entries = _saved_before(path)
    files, written = [], 0
    for source, file in zip(sources, checked.files, strict=True):
        own, notes = entries.setdefault(source.key, {}), list(file.notes)
        dropped = sorted(own.keys() - {kernel.id for kernel in source.kernels})
        for name in dropped:
            del own[name]
        if dropped:
            notes.append(f"{_listed(dropped)} no longer in {file.path}: dropped from {path}")
        for kernel in file.kernels:
            name = kernel.report.name
            outcome = made[source.key, name]
            if isinstance(outcome, Baseline):
                own[name] = outcome
                written += 1
            else:
                kept = "; its earlier entry is kept" if name in own else ""
                notes.append(f"not saved in {path}: {outcome}{kept}")
        files.append(attrs.evolve(file, notes=tuple(notes)))
    data = baselines.dump({name: kernels for name, kernels in entries.items() if kernels})
    write_whole(path, data.encode())
    return Checked(tuple(files), (*checked.notes, f"{count(written, 'kernel')} saved in {path}"))


# The run


async def _check(
    settings: Settings,
    sources: Sequence[_Source],
    held: Mapping[str, Mapping[str, Baseline]] | None,
    arguments: argparse.Namespace,
) -> tuple[Checked, dict[tuple[str, str], Baseline | str]]:
    engine = Engine(settings)
    files: list[CheckedFile] = []
    made: dict[tuple[str, str], Baseline | str] = {}
    try:
        if arguments.sanitize and (why_not := await engine.why_not_sanitized()) is not None:
            raise UsageError(f"--sanitize: {why_not}")
        for source in sources:
            entries, path = (held or {}).get(source.key, {}), str(source.path.resolve())
            with _status(source.path):
                reports = await engine.check(
                    source.document, path, kernels=arguments.kernel, baselines=entries, settings=source.settings
                )
            unseen: list[str] = []
            if arguments.sanitize:
                reports, unseen = await _sanitized(engine, source, reports)
            files.append(_checked_file(source, reports, entries, unseen, arguments))
            if arguments.save_baseline is not None:
                for report in reports:
                    made[source.key, report.name] = await _baseline(engine, source, report)
    finally:
        await engine.close()
    notes = dict.fromkeys(sentence for source in sources for sentence in source.complaints)
    notes |= dict.fromkeys(note for file in files for kernel in file.kernels for note in kernel.report.notes)
    for source, file in zip(sources, files, strict=True):
        notes |= dict.fromkeys(_why_no_times(source.settings, file.kernels, arguments.baseline))
    notes |= dict.fromkeys(_missing_files(held, arguments.baseline))
    return Checked(tuple(files), tuple(notes)), made


async def _sanitized(
    engine: Engine, source: _Source, reports: Sequence[KernelReport]
) -> tuple[tuple[KernelReport, ...], list[str]]:
    """The reports with what compute-sanitizer says, and a sentence for each kernel that it did not look at whole."""
    seen, notes = [], []
    for report in reports:
        if may_be_sanitized(report):
            with _status(source.path):
                found = await engine.sanitize(
                    source.document, str(source.path.resolve()), report.name, settings=source.settings
                )
            if found is None:
                found = Sanitized((), (), "others use the GPU all the time; try again")
            if found.reason:
                notes.append(f"{report.name}: compute-sanitizer: {found.reason}")
            report = with_sanitized(report, found)
        elif isinstance(report.build, Compiled) and isinstance(report.verdict, Unverified):
            notes.append(f"{report.name}: not looked at by compute-sanitizer, because it is not verified")
        seen.append(report)
    return tuple(seen), notes


def _status(path: Path) -> contextlib.AbstractContextManager[Any]:
    """What a person who waits sees; nothing in a log."""
    console = Console(stderr=True)
    return console.status(f"checking {escape(str(path))}") if console.is_terminal else contextlib.nullcontext()


async def _baseline(engine: Engine, source: _Source, report: KernelReport) -> Baseline | str:
    """The baseline that a report makes, or why it makes none."""
    if reason := baselines.why_not(report):
        return reason
    build = await engine.code(source.document, str(source.path.resolve()), report.name, settings=source.settings)
    if isinstance(build, str):
        return f"{report.name}: {build}"
    kernel = next(kernel for kernel in source.kernels if kernel.id == report.name)
    return baselines.make(kernel, report, build, "accepted")


def _checked_file(
    source: _Source,
    reports: Sequence[KernelReport],
    entries: Mapping[str, Baseline],
    unseen: Sequence[str],
    arguments: argparse.Namespace,
) -> CheckedFile:
    kernels = tuple(held_against_baseline(report, source.settings.regression_percent) for report in reports)
    if arguments.baseline is None:
        return CheckedFile(source.path, kernels, notes=tuple(unseen))
    new = tuple(report.name for report in reports if report.name not in entries)
    gone = () if arguments.kernel else tuple(sorted(entries.keys() - {kernel.id for kernel in source.kernels}))
    notes = list(_not_compared(kernels, timed=not _why_no_times(source.settings, kernels, arguments.baseline)))
    if new:
        notes.append(f"{_listed(new)} new: not in {arguments.baseline}")
    if gone:
        notes.append(f"{_listed(gone)} gone from {source.path}: still in {arguments.baseline}")
    return CheckedFile(source.path, kernels, new, gone, (*notes, *unseen))


def _why_no_times(settings: Settings, kernels: Sequence[CheckedKernel], baseline_file: Path | None) -> Sequence[str]:
    """The sentence that says that no time was measured, and what is compared without; none if times were wanted and had."""
    if not settings.benchmark:
        why = "timing is switched off"
    elif any(kernel.report.evidence.device == "host" for kernel in kernels):
        why = "no GPU here"
    else:
        return ()
    if baseline_file is None:
        return (f"{why}: nothing is timed",)
    return (f"{why}: kernels are held against {baseline_file} by registers, spills and occupancy only",)


def _not_compared(kernels: Sequence[CheckedKernel], *, timed: bool) -> Iterable[str]:
    """A sentence for each reason that keeps kernels with a baseline from being held against it as they should."""
    reasons: dict[str, list[str]] = {}
    for kernel in kernels:
        report = kernel.report
        if kernel.fault is None and isinstance(report.comparison, NotCompared) and report.baseline is not None:
            if (problem := figures_problem(report)) is not None:
                reasons.setdefault(problem, []).append(report.name)
            elif timed:
                told = f"{report.comparison.reason}; held by registers, spills and occupancy only"
                reasons.setdefault(told, []).append(report.name)
    for reason, names in reasons.items():
        yield f"{', '.join(names)}: {reason}"


def _missing_files(held: Mapping[str, Mapping[str, Baseline]] | None, baseline_file: Path | None) -> Iterable[str]:
    if held is None or baseline_file is None:
        return
    folder = baseline_file.resolve().parent
    for name in held:
        if not (folder / name).exists():
            yield f"{name} is gone: still in {baseline_file}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


# What a person reads


def _print(checked: Checked, style: str, arguments: argparse.Namespace) -> None:
    everything = arguments.verbose > 0
    against = arguments.baseline is not None
    text = _rendered(checked, style, everything, against)
    if arguments.output is not None:
        if text is None:
            text = _as_text(checked, everything, against)
        write_whole(arguments.output, text.encode("utf-8", "replace"))
        text = None
    if text is None:
        _print_text(_console(), checked, everything, against)
    else:
        # UTF-8 whatever the terminal's encoding is: it goes to a program, and the XML says so.
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.flush()


def _rendered(checked: Checked, style: str, everything: bool, against: bool) -> str | None:
    """The report in a format for programs; None for text, whose width depends on where it goes."""
    if style == "json":
        return json.dumps(check_document(checked), indent=2) + "\n"
    if style == "sarif":
        return json.dumps(sarif(checked, repository_root(Path.cwd())), indent=2) + "\n"
    return junit(checked) if style == "junit" else None


def _console(**options: Any) -> Console:
    console = Console(**options)
    # A log of a CI is wider than the 80 columns that a pipe is taken for.
    return console if console.is_terminal else Console(width=CI_WIDTH, **options)


def _as_text(checked: Checked, everything: bool, against: bool) -> str:
    written = io.StringIO()
    _print_text(_console(file=written), checked, everything, against)
    return written.getvalue()


def _print_text(console: Console, checked: Checked, everything: bool, against: bool) -> None:
    for file in checked.files:
        _print_file(console, file, everything, against)
    for sentence in checked.notes:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _print_file(console: Console, file: CheckedFile, everything: bool, against: bool) -> None:
    if not file.kernels:
        console.print(f"{file.path}: no kernel with a body", markup=False)
        return
    table = Table(title=escape(str(file.path)), title_justify="left")
    heads = ("line", "kernel", "regs", "spills", "occupancy", "verdict") + (("baseline",) if against else ())
    for head in heads:
        table.add_column(head, no_wrap=head == "kernel", overflow="fold")
    for kernel in file.kernels:
        told = ("new" if kernel.report.name in file.new else kernel.against,) if against else ()
        table.add_row(*map(escape, (*_row(kernel.report), *told)))
    console.print(table)
    for kernel in file.kernels:
        for sentence in _remarks(file.path, kernel, everything):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for sentence in file.notes:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _remarks(path: Path, kernel: CheckedKernel, everything: bool) -> Sequence[str]:
    """What a cell of the table cannot hold: compiler messages at their places, and why a kernel is not verified."""
    report = kernel.report
    if isinstance(report.build, CompileFailed):
        return [place(path, message) for message in report.build.messages]
    if isinstance(report.build, NotCompiled):
        return [f"{report.name}: {report.build.reason}"]
    if kernel.regression is not None:
        return [f"{path}:{report.line + 1}: {report.name}: {kernel.regression}"]
    unknown = report.spec.unknown
    if unknown and not everything:
        more = f" (and {len(unknown) - 1} more: dice-lsp -v check)" if len(unknown) > 1 else ""
        return [f"{report.name}: {unknown[0]}{more}"]
    if unknown:
        return [f"{report.name}: {sentence}" for sentence in unknown]
    return [f"{report.name}: {kernel.doubt}"] if kernel.doubt is not None and not report.spec.skip else []


def _row(report: KernelReport) -> Sequence[str]:
    build = report.build
    head = (str(report.line + 1), report.name)
    if not isinstance(build, Compiled):
        return (*head, "", "", "", kernel_label(report))
    spills = f"{build.spill_store_bytes + build.spill_load_bytes} B"
    occupancy = f"{build.occupancy:.0%}" + ("" if build.limiter == "none" else f", {build.limiter}")
    verdict = (
        kernel_label(report).removeprefix(f"{build.registers} regs  ").removeprefix(f"occ {build.occupancy:.0%}  ")
    )
    return (*head, str(build.registers), spills, occupancy, verdict)
