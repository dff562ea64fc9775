"""Each kernel of a tree through the product: the same engine, worker and launch inference as in an editor, on the host.

A row is one kernel. Rows are written to a file as they come, and a run that finds rows there for the same text and the
same product takes them over, so that an ended run goes on where it was.
"""

import asyncio
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

import dice_lsp
from dice_lsp.command_line import read_document
from dice_lsp.config import Settings
from dice_lsp.pipeline import Engine
from dice_lsp.records import (
    Cheating,
    Compiled,
    CompileFailed,
    Document,
    Kernel,
    KernelReport,
    LaunchSpec,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)
from dice_lsp.source.embedded import is_python
from dice_lsp.source.kernels import parse
from tests.coverage.counting import Count, count_in_python, count_kernels

SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".hxx", ".inl", ".py")
COMPILE_S = 90.0
"""Longest work on one kernel's compile, NVRTC and then nvcc."""
VERIFY_S = 60.0
"""Longest work on one kernel's host run."""


@frozen
class Row:
    """What became of one kernel. Texts are the product's own sentences."""

    path: str
    """Relative to the tree."""
    kernel: str
    line: int
    """One-based."""
    built: str = ""
    """`nvrtc`, `nvcc`, `failed` (its text does not compile), `none` (not compiled), empty where not asked."""
    build_reason: str = ""
    launch: bool = False
    launch_reasons: tuple[str, ...] = ()
    origins: Mapping[str, str] = attrs.field(factory=dict)
    """Part of the launch -> origin; buffers and dims under their names."""
    confidence: Mapping[str, str] = attrs.field(factory=dict)
    site: str = ""
    """Where the tree launches it: `same file`, `other file`, `named elsewhere`, `nowhere`."""
    verdict: str = ""
    """Record's name in lower case, `safe` for an unverified one that passed checks; empty where not asked."""
    verdict_reason: str = ""
    product: str = ""
    text: str = ""
    """Digests of the product and of the file."""


@frozen
class File:
    """One file with kernels."""

    path: str
    counted: Count
    document: Document
    kernels: tuple[Kernel, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Names with their lines that were counted and not found."""
        spans = [(kernel.start, kernel.body_start) for kernel in self.kernels]
        names = [kernel.name for kernel in self.kernels]
        gone = []
        for one in self.counted.kernels:
            here = any(start <= one.at < end for start, end in spans) if self.document.file_text is None else False
            if here or one.name in names:
                if one.name in names:
                    names.remove(one.name)
                continue
            gone.append(f"{one.name}:{one.line}")
        return tuple(gone)

    @property
    def extra(self) -> int:
        """Kernels found beyond those counted."""
        return max(0, len(self.kernels) - (len(self.counted.kernels) - len(self.missed)))


def read_tree(tree: Path, names: Sequence[str] = ()) -> tuple[File, ...]:
    """The files with kernels below a folder, sorted; with `names` only those whose path holds one of them."""
    found = []
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            relative = path.relative_to(tree).as_posix()
            if path.suffix not in SUFFIXES or (names and not any(part in relative for part in names)):
                continue
            data = path.read_bytes()
            if b"__global__" not in data:
                continue
            document = read_document(path)
            counted = (count_in_python if is_python(name) else count_kernels)(document.shown)
            kernels = parse(document.text).kernels
            if counted.kernels or kernels:
                found.append(File(relative, counted, document, kernels))
    return tuple(found)


def product_digest() -> str:
    """Of everything that decides a row: the package without what only editors and models see."""
    root, digest = Path(dice_lsp.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*")):
        room = path.relative_to(root).parts[0]
        if path.suffix in (".py", ".h", ".cpp") and room not in ("server", "training", "diffusion", "demo", "capture"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Sites:
    """Where the tree launches a kernel, found by its name in all its texts."""

    def __init__(self, tree: Path) -> None:
        self.texts: dict[str, str] = {}
        for folder, folders, files in os.walk(tree):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                path = Path(folder) / name
                if path.suffix in (*SUFFIXES, ".c", ".cc", ".cpp", ".cxx"):
                    self.texts[path.relative_to(tree).as_posix()] = path.read_text("utf-8", "replace")

    def of(self, path: str, name: str) -> str:
        launch = re.compile(rf"\b{re.escape(name)}\s*(?:<(?!<)[^;{{}}]*?>)?\s*<<<")
        if launch.search(self.texts.get(path, "")):
            return "same file"
        if any(name in text and launch.search(text) for text in self.texts.values()):
            return "other file"
        word = re.compile(rf"\b{re.escape(name)}\b")
        if len(word.findall(self.texts.get(path, ""))) > 1:
            return "named in the file"
        return "named elsewhere" if any(word.search(t) for p, t in self.texts.items() if p != path) else "nowhere"


async def measure(
    tree: Path,
    files: Sequence[File],
    *,
    settings: Settings,
    compile_kernels: bool,
    verify: bool,
    jobs: int,
    state: Path | None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> tuple[Row, ...]:
    """A row for each kernel of the files, those in `state` taken over where neither text nor product has changed."""
    product, sites = product_digest(), Sites(tree)
    known = _kept(state, product)
    waiting: asyncio.Queue[File] = asyncio.Queue()
    rows: dict[tuple[str, str], Row] = {}
    for file in files:
        waiting.put_nowait(file)

    async def work() -> None:
        engine = Engine(settings)
        try:
            while not waiting.empty():
                file = waiting.get_nowait()
                digest = hashlib.sha256(file.document.shown.encode("utf-8", "replace")).hexdigest()[:16]
                missing = []
                for kernel in file.kernels:
                    row = known.get((file.path, kernel.id, digest))
                    if (
                        row is None
                        or (compile_kernels and not row.built)
                        or (verify and row.launch and not row.verdict)
                    ):
                        missing.append(kernel.id)
                    else:
                        rows[file.path, kernel.id] = row
                if not missing:
                    continue
                async for row in _rows(engine, tree, file, missing, settings, compile_kernels, verify):
                    row = attrs.evolve(
                        row,
                        product=product,
                        text=digest,
                        site=sites.of(file.path, row.kernel.split("::")[-1].split("@")[0]),
                    )
                    rows[file.path, row.kernel] = row
                    if state is not None:
                        with state.open("a") as log:
                            log.write(json.dumps(attrs.asdict(row)) + "\n")
                    on_row(row)
        finally:
            await engine.close()

    await asyncio.gather(*(work() for _ in range(max(1, jobs))))
    return tuple(rows[file.path, kernel.id] for file in files for kernel in file.kernels)


async def _rows(
    engine: Engine, tree: Path, file: File, names: Sequence[str], settings: Settings, compile_kernels: bool, verify: bool
) -> AsyncIterator[Row]:  # fmt: skip
    path = str((tree / file.path).resolve())
    for kernel, spec in await engine.specs(file.document, path, names):
        row = _launched(Row(file.path, kernel.id, kernel.line + 1), spec)
        if compile_kernels:
            only = attrs.evolve(settings, verify=False, benchmark=False)
            report = await _checked(engine, file.document, path, kernel, only, COMPILE_S)
            row = _built(row, report)
            if verify and row.launch and isinstance(report.build, Compiled):
                full = attrs.evolve(settings, verify=True, benchmark=False)
                report = await _checked(engine, file.document, path, kernel, full, VERIFY_S)
                row = _judged(_launched(row, report.spec), report)
        yield row


async def _checked(
    engine: Engine, document: Document, path: str, kernel: Kernel, settings: Settings, budget_s: float
) -> KernelReport:
    (report,) = await engine.check(document, path, kernels=[kernel.id], settings=settings, budget_s=budget_s)
    return report


def _launched(row: Row, spec: LaunchSpec) -> Row:
    origins = {name: str(origin) for name, origin in spec.origins.items()}
    origins |= {f"size of {buffer.name}": str(buffer.origin) for buffer in spec.buffers}
    origins |= {f"value of {dim.name}": str(dim.origin) for dim in spec.dims}
    confidence = {name: str(value) for name, value in getattr(spec, "confidence", {}).items()}
    known = not spec.unknown and spec.grid is not None and spec.block is not None
    return attrs.evolve(row, launch=known, launch_reasons=spec.unknown, origins=origins, confidence=confidence)


def _built(row: Row, report: KernelReport) -> Row:
    build = report.build
    if isinstance(build, Compiled):
        return attrs.evolve(row, built=build.compiler.split()[0])
    if isinstance(build, CompileFailed):
        first = (*build.errors, *build.messages)[0]
        return attrs.evolve(row, built="failed", build_reason=f"line {first.line + 1}: {first.text}"[:400])
    return attrs.evolve(row, built="none", build_reason=build.reason)


def _judged(row: Row, report: KernelReport) -> Row:
    verdict = report.verdict
    if isinstance(verdict, Verified):
        return attrs.evolve(row, verdict="verified", verdict_reason=verdict.reference)
    if isinstance(verdict, Unverified):
        kind = "safe" if verdict.checks else "unverified"
        return attrs.evolve(row, verdict=kind, verdict_reason=verdict.reason)
    if isinstance(verdict, Wrong):
        told = f"{verdict.buffer}[{verdict.index}] is {verdict.got}, expected {verdict.expected} ({verdict.case})"
        return attrs.evolve(row, verdict="wrong", verdict_reason=told)
    if isinstance(verdict, Unsafe):
        return attrs.evolve(row, verdict="unsafe", verdict_reason=f"{verdict.hazard}: {verdict.where} ({verdict.case})")
    assert isinstance(verdict, Cheating)
    return attrs.evolve(row, verdict="cheating", verdict_reason=f"{verdict.trick}: {verdict.where}")


def _kept(state: Path | None, product: str) -> dict[tuple[str, str, str], Row]:
    if state is None or not state.is_file():
        return {}
    found = {}
    for line in state.read_text().splitlines():
        row = _row(json.loads(line))
        if row.product == product:
            found[row.path, row.kernel, row.text] = row
    return found


def _row(data: Mapping[str, Any]) -> Row:
    return Row(**{**data, "launch_reasons": tuple(data["launch_reasons"])})


def includers_of(tree: Path, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Header -> the `.cu` files whose includes lead to it, by file name alone, shallowest first."""
    including: dict[str, set[str]] = {}
    sources = Sites(tree).texts
    for path, text in sources.items():
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\r\n]+)[">]', text, re.MULTILINE):
            including.setdefault(name.rsplit("/", 1)[-1], set()).add(path)
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        if path.endswith((".cu", ".py")):
            continue
        seen, edge = [path], [path]
        while edge:
            edge = [p for one in edge for p in sorted(including.get(one.rsplit("/", 1)[-1], ())) if p not in seen]
            seen += list(dict.fromkeys(edge))
        found[path] = tuple(other for other in seen if other.endswith(".cu"))
    return found
