"""`dice-lsp capture`: run the user's program and record what it gives its kernels; list, show and remove recordings."""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dice_lsp import process
from dice_lsp.capture import session, store
from dice_lsp.capture.recording import CaptureError, read_run
from dice_lsp.capture.session import CaptureReport, Source, Wish
from dice_lsp.capture.store import Recorded
from dice_lsp.command_line import UsageError, read_document
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.wording import count

SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl", ".cc", ".cpp", ".py")
_PASSED_BY = {"build", "dist", "node_modules", "venv", "site-packages"}
MOST_FILES = 5000
MOST_BYTES = 4 << 20


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `dice-lsp`."""
    parser = commands.add_parser(
        "capture",
        help="run your program and record what it gives its kernels",
        usage="dice-lsp capture [options] [FILE] [-- PROGRAM ...]",
        description="Run a program and record the launches of a file's kernels: grid, block, arguments, and the memory"
        " before and after, which then are cases and reference of `dice-lsp check`. Without a program, the command of the"
        ' file\'s line `//dice: run "..."` is run.',
    )
    parser.add_argument("words", nargs="*", metavar="FILE | -- PROGRAM", help="see above")
    parser.add_argument(
        "--file", action="append", default=[], metavar="FILE", help="whose kernels; else all below this folder"
    )
    parser.add_argument(
        "--kernels", action="append", default=[], metavar="NAMES", help="only these, separated by commas"
    )
    parser.add_argument(
        "--limit-mb", type=_positive, default=session.DEFAULT_LIMIT_MB, metavar="N",
        help="of the recording; default %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--launches",
        type=_positive,
        default=session.DEFAULT_LAUNCHES,
        metavar="N",
        help="kept of each kernel; default %(default)s",
    )
    parser.add_argument(
        "--wait", type=_positive, default=session.DEFAULT_WAIT_S, metavar="SECONDS",
        help="for a kernel that does not end by itself; default %(default)s",
    )  # fmt: skip
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument("--list", action="store_true", help="the recordings that are here")
    verbs.add_argument(
        "--show", nargs="?", const="", metavar="NAME", help="the launches of a recording, else of the newest"
    )
    verbs.add_argument("--clear", action="store_true", help="remove all recordings that are here")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    try:
        if arguments.list:
            return _list(_place(arguments))
        if arguments.show is not None:
            return _show(_place(arguments), arguments.show)
        if arguments.clear:
            removed = sum(store.clear(folder) for folder in store.stores_of(_inside(_place(arguments)))[:1])
            print(f"{count(removed, 'recording')} removed")
            return 0
        worst = 0
        for wish in _wishes(arguments):
            worst = max(worst, _record(wish))
        return worst
    except CaptureError as error:
        raise UsageError(str(error)) from error


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _wishes(arguments: argparse.Namespace) -> Iterator[Wish]:
    words = list(arguments.words)
    files = [Path(name) for name in arguments.file]
    if words and words[0].endswith((".cu", ".cuh")):
        files.append(Path(words.pop(0)))
    elif len(words) == 1 and not files and words[0].endswith(SUFFIXES) and not os.access(words[0], os.X_OK):
        files.append(Path(words.pop(0)))
    names = [name.strip() for given in arguments.kernels for name in given.split(",") if name.strip()] or None
    if words:
        if files:
            sources = tuple(_source(path, names) for path in files)
            project = store.project_of(Path(sources[0].path).parent)
            project = Path(os.path.commonpath([project, *(os.path.dirname(source.path) for source in sources)]))
        else:
            sources = sources_below(Path.cwd(), names)
            project = store.project_of(Path.cwd())
        yield _wish(arguments, sources, tuple(words), os.getcwd(), project, {})
        return
    if not files:
        raise UsageError(
            "nothing to run: write `dice-lsp capture --file FILE.cu -- ./program`, or a file with a `//dice: run` line"
        )
    for path in files:
        source = _source(path, names)
        lines = run_lines(source)
        if not lines:
            raise UsageError(
                f'{path} has no line `//dice: run "./program"`: write one, or `dice-lsp capture {path} -- ./program`'
            )
        project = store.project_of(Path(source.path).parent)
        for line in lines:
            command, environment = session.words_of(line)
            yield _wish(arguments, (source,), command, str(project), project, environment)


def _wish(
    arguments: argparse.Namespace, sources: tuple[Source, ...], command: tuple[str, ...], folder: str, project: Path,
    environment: dict[str, str],
) -> Wish:  # fmt: skip
    return Wish(
        sources, command, folder, str(project), environment,
        arguments.limit_mb, arguments.launches, arguments.wait, arguments.trace,
    )  # fmt: skip


def _source(path: Path, names: list[str] | None) -> Source:
    return session.source_of(str(path), read_document(path), names)


def sources_below(folder: Path, names: list[str] | None) -> tuple[Source, ...]:
    """Every file below a folder that defines kernels, or those with the names."""
    found: list[Source] = []
    seen = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_BY)
        for name in sorted(files):
            path = Path(root, name)
            if not name.endswith(SUFFIXES) or not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            seen += 1
            if seen > MOST_FILES:
                raise UsageError(f"{folder} has more than {MOST_FILES} source files: name the file with --file")
            if b"__global__" not in path.read_bytes():
                continue
            document = read_document(path)
            kernels = tuple(
                kernel for kernel in parse(document.text).kernels
                if names is None or {kernel.id, kernel.name, kernel.qualified_name} & set(names)
            )  # fmt: skip
            if kernels:
                found.append(Source(os.path.realpath(path), document, kernels))
    if not found:
        what = "no __global__ function" if names is None else f"no kernel {', '.join(names)}"
        raise UsageError(f"{what} is in the source files below {folder}: name the file with --file")
    return tuple(found)


def run_lines(source: Source) -> tuple[str, ...]:
    """The commands of the `//dice: run "..."` clauses of the kernels of a source, each once."""
    found = [parse_directives(source.text, kernel).run for kernel in source.kernels]
    return tuple(dict.fromkeys(re.sub(r'\\(["\\])', r"\1", line) for line in found if line))


def _record(wish: Wish) -> int:
    console = Console(stderr=True)

    def tell(words: str) -> None:
        console.print(f"[dim]dice-lsp: {escape(words)}[/dim]", highlight=False)

    def start(argv: Sequence[str], environment: Mapping[str, str], folder: str) -> int:
        sys.stdout.flush()
        return process.attended(argv, env=environment, cwd=folder)

    report = session.record(wish, start, tell)
    for note in report.notes:
        console.print(f"dice-lsp: note: {note}", markup=False, highlight=False)
    if report.kept is not None and report.path:
        console.print(_table(report))
        where = os.path.relpath(report.path)
        console.print(
            f"dice-lsp: {report.nbytes / 1e6:.1f} MB recorded on {report.kept.device or 'a GPU'} in {where}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    else:
        print(f"dice-lsp: {report.reason}", file=sys.stderr)
    return 0 if report.path and report.exit_code == 0 else 1


def _table(report: CaptureReport) -> Table:
    assert report.kept is not None
    table = Table()
    for head in ("kernel", "file", "launches", "recorded", ""):
        table.add_column(head)
    for found in report.kept.kernels:
        if not found.seen and len(report.kept.kernels) > 20:
            continue
        said = [
            f"{number} {what}"
            for number, what in (
                (found.bare, "without memory"), (found.over_limit, "over the limit"), (found.in_graph, "in CUDA graphs"),
                (found.unfinished, "did not end"), (found.failed, "failed"),
            )
            if number
        ]  # fmt: skip
        table.add_row(escape(found.id), escape(found.file), str(found.seen), str(found.kept), ", ".join(said))
    return table


def _place(arguments: argparse.Namespace) -> Path:
    """A path inside of the folder whose recordings are meant: a file that was named, else anything here."""
    named = [*arguments.file, *arguments.words]
    if not named:
        return Path.cwd() / "."
    path = Path(named[0])
    return path / "." if path.is_dir() else path


def _list(place: Path) -> int:
    found = store.listing(_inside(place))
    if not found:
        print("no recordings are here: dice-lsp capture --help", file=sys.stderr)
    for name, line in found:
        print(f"{name}  {line}")
    return 0


def _show(place: Path, name: str) -> int:
    path = name
    if not os.path.isfile(path):
        names = [found for found, _ in store.listing(_inside(place))]
        name = name or next(iter(names), "")
        found_path = store.resolve(name, _inside(place)) if name else None
        if found_path is None:
            raise UsageError(f"there is no recording {name}; there are {', '.join(names) or 'none'}")
        path = found_path
    console = Console()
    console.print(store.about(read_run(Path(path))), markup=False, highlight=False, soft_wrap=True)
    for recorded in store.read_file(path):
        console.print(_described(recorded), markup=False, highlight=False, soft_wrap=True)
    return 0


def _inside(place: Path) -> str:
    """The name of a file in the folder: what lies above it is looked at, not the file."""
    return str(place / "any.cu") if place.is_dir() else str(place)


def _described(recorded: Recorded) -> str:
    lines = [
        f"{recorded.launch.index}  {recorded.kernel}  <<<{_sizes(recorded.grid)}, {_sizes(recorded.block)}"
        f"{f', {recorded.smem_bytes}' if recorded.smem_bytes else ''}>>>  launch {recorded.order} ({recorded.why})"
    ]
    for at, parameter in enumerate(recorded.parameters):
        lines.append(f"   {at}: {_value(recorded, parameter.data)}")
    lines += [f"   {symbol.name}: {symbol.nbytes} bytes of device code's memory" for symbol in recorded.symbols]
    lines += [f"   not to be run again: {problem}" for problem in recorded.problems]
    return "\n".join(lines)


def _sizes(of: tuple[int, int, int]) -> str:
    kept = max((at + 1 for at in range(3) if of[at] != 1), default=1)
    return str(of[0]) if kept == 1 else f"({', '.join(map(str, of[:kept]))})"


def _value(recorded: Recorded, data: bytes) -> str:
    word = int.from_bytes(data, "little")
    if len(data) == 8:
        for allocation in recorded.allocations:
            if 0 <= word - allocation.address < allocation.nbytes:
                offset = word - allocation.address
                partly = "" if allocation.complete else ", recorded in part"
                return f"{allocation.nbytes} bytes of {allocation.kind} memory{f', from byte {offset}' if offset else ''}{partly}"
    if len(data) in (1, 2, 4, 8):
        import struct

        shown = str(int.from_bytes(data, "little", signed=True))
        if len(data) in (4, 8):
            shown += f" or {struct.unpack('<f' if len(data) == 4 else '<d', data)[0]:g}"
        return shown
    return f"{len(data)} bytes {data[:16].hex()}{'...' if len(data) > 16 else ''}"
