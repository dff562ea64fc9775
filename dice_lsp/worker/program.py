"""A document made ready for a device compiler: cut, its own headers found, read and cut, every include decided about.

The user's headers reach NVRTC in memory under their paths. What leaves the workspace, directly, by a link or by a trick
of the preprocessor, is refused: the text may be a model's.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import evolve, field, frozen

from dice_lsp.records import CompileMessage, Kernel
from dice_lsp.source import slice as slices
from dice_lsp.source.slice import DeviceSlice, Include, IncludeKind
from dice_lsp.worker.libraries import library_include_dirs
from dice_lsp.worker.prelude import CONSTEXPR, library_headers, standard_headers
from dice_lsp.workspace import nearest_with, usual_include_dirs, workspace_root

MAX_HEADERS = 400
MAX_HEADER_BYTES = 4 << 20
DOCUMENT = "dice_document.cu"
"""What the document is called for a compiler."""
DOCUMENT_HEADER = "dice_document.cuh"
"""What it is called where it is compiled within the text of a file that includes it."""


@frozen
class CompileJob:
    """What to compile. The mappings are keyed by `build_keys(kernels)`, which is the kernel's name unless it is taken twice."""

    text: str
    path: str
    """Where the document lies or would lie: quoted includes are found from here."""
    kernels: tuple[Kernel, ...]
    templates: Mapping[str, Mapping[str, str]] = field(factory=dict)
    """Kernel -> template parameter -> type or value."""
    arch: str = "auto"
    flags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    pre_includes: tuple[str, ...] = ()
    """Headers that are included before the text, by their absolute paths."""
    includer: str = ""
    """For a header: a file that includes it, in whose text it is compiled when it does not compile alone."""
    block_threads: Mapping[str, int] = field(factory=dict)
    """Kernel -> threads of a block, for the occupancy; else its launch bounds, else 256."""
    smem_bytes: Mapping[str, int] = field(factory=dict)
    """Kernel -> dynamic shared memory, for the occupancy."""
    deadline_s: float = 60.0
    """For nvcc; NVRTC is bounded by the owner of this process."""
    alone: bool = False
    """Leave out the document's other kernels, so that their errors and their compile time do not count."""


@frozen
class Header:
    """A header of the user's, read and sliced; it reaches NVRTC in memory under its path."""

    path: str
    text: str
    included_at: int
    """Line of the document whose include leads to it, zero-based."""


@frozen
class Program:
    """A document ready for NVRTC: the slice, its headers and everything that is known about what was left out."""

    sliced: DeviceSlice
    nvrtc_text: str
    """The slice with includes resolved; lines of the document, columns too except on include lines."""
    headers: tuple[Header, ...]
    heavy: tuple[str, ...]
    """Includes worth precompiling, hoisted to the top."""
    standard: tuple[str, ...]
    """Headers of cuda/std that stand in for the standard library's."""
    library: tuple[str, ...]
    """Headers of device types that a header of a library would have brought."""
    namespaces: tuple[str, ...]
    """Targets of using directives."""
    using_std: bool
    """The text or a header says `using namespace std`."""
    errors: tuple[CompileMessage, ...]
    missing: tuple[Include, ...]
    """Headers that were not found and were left out."""
    header_names: tuple[str, ...] = ()
    """Every header that the text and its own headers include, as written."""
    folders: tuple[Path, ...] = ()
    """Include folders that no flag names, but in which headers of the project were found."""
    pre_includes: tuple[str, ...] = ()
    """Those of `headers` that are included before the text."""
    missing_lines: tuple[int, ...] = ()
    """For each of `missing`, the line of the document whose include leads to it."""
    guessed: tuple[str, ...] = ()
    """One sentence for each header that no folder is known to hold, but that the project has once."""
    dropped: frozenset[str] = frozenset()
    """What was left out of the document and of its headers."""
    library_dirs: tuple[Path, ...] = ()
    """Folders of libraries made for NVRTC too, whose headers it reads itself."""
    includer: str = ""
    """The file whose text `nvrtc_text` is of, where the document is one of `headers`."""
    includer_text: str = ""
    """That file's whole text, with `DOCUMENT_HEADER` for the document where it includes that itself."""

    @property
    def device_text(self) -> str:
        """The slice of the document, for back ends that find the headers themselves."""
        return self.sliced.text

    @property
    def header_texts(self) -> dict[str, str]:
        return {header.path: header.text for header in self.headers}


def build_keys(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """One key per kernel: what `source.kernels` tells it from its namesakes by."""
    return tuple(kernel.id for kernel in kernels)


def include_dirs_of(job: CompileJob) -> tuple[Path, ...]:
    base = Path(job.path).parent
    named = [*job.include_dirs, *(flag[2:].strip() for flag in job.flags if flag.startswith("-I"))]
    return tuple(Path(os.path.normpath(base / folder)) for folder in named if folder)


_INCLUDING = re.compile(r"include|import|embed")
_BY_LINK = "leaves the workspace by a link, so it is not read; add the folder that it leads to with -I"


class Assembler:
    """Finds, reads and slices the user's headers, and decides about every include."""

    def __init__(
        self, find_system_header: Callable[[str], Path | None], job: CompileJob, *, within: bool = False
    ) -> None:
        """`within`: the text to begin with is that of the job's includer, and the document one of its headers."""
        self.find_system_header, self.job, self.within = find_system_header, job, within
        self.document = os.path.normpath(os.path.abspath(job.path))
        self.folder = Path(self.document).parent
        self.include_dirs = include_dirs_of(job)
        self.root = workspace_root(self.folder)
        self.roots = (*self.include_dirs, self.root)
        self.usual_dirs = usual_include_dirs(self.folder, self.root)
        self.errors: list[CompileMessage] = []
        self.missing: list[Include] = []
        self.missing_lines: list[int] = []
        self.guessed: list[str] = []
        self.library_dirs: list[Path] = []
        self.paths: list[str] = []
        self.texts: list[str] = []
        self.lines: list[int] = []
        self.folders: list[Path] = []
        self.resolved: dict[tuple[int, int], str | None] = {}
        """(text, offset of an include) -> path of a user's header, or None for one that is left out."""

    def _inside(self, path: Path) -> bool:
        """Whether a file lies in the workspace or a folder that was named, links followed."""
        real = os.path.realpath(path)
        return any(Path(real).is_relative_to(os.path.realpath(root)) for root in self.roots)

    def places(self) -> tuple[str, ...]:
        """Folders that a header may be read from: the workspace and those that were named."""
        return tuple(dict.fromkeys(map(str, self.roots)))

    def assemble(self) -> Program:
        job = self.job
        self.paths, self.texts, self.lines = [job.path], [job.text], [-1]
        if self.within:
            self._begin_with_includer()
        before = tuple(path for path in job.pre_includes if self._included_first(path))
        at = 0
        while at < len(self.texts):
            self._look_for_tricks(at)
            for include in slices.includes_of(self.texts[at]):
                self._take(at, include)
            at += 1
        arguments = " ".join(value for named in job.templates.values() for value in named.values())
        sliced = slices.slice_together(self.texts, names=re.findall(r"[A-Za-z_]\w*", arguments))
        document = self._document_index()
        if self.within and document == 0:
            line = f"{Path(job.includer).name} does not include this file in a way that can be followed"
            self.errors.append(CompileMessage(0, 0, "error", line))
        if job.alone:
            text = slices.without_kernels(sliced[document].text, slices.kernels_of(job.text), job.kernels)
            sliced = tuple(evolve(part, text=text) if at == document else part for at, part in enumerate(sliced))
        rewritten = [self._rewrite(index, part) for index, part in enumerate(sliced)]
        for index, part in enumerate(sliced):
            self._look_again(index, part, rewritten[index])
        headers = tuple(Header(self.paths[i], rewritten[i], self.lines[i]) for i in range(1, len(self.texts)))
        return Program(
            sliced=sliced[document],
            nvrtc_text=rewritten[0],
            headers=headers,
            heavy=self._heavy(sliced),
            standard=self._standard(sliced, rewritten),
            library=self._library(sliced),
            namespaces=tuple(dict.fromkeys(name for part in sliced for name in part.using_namespaces)),
            using_std=any(uses_std(part) for part in sliced),
            errors=tuple(self.errors),
            missing=tuple(self.missing),
            header_names=tuple(dict.fromkeys(i.name for text in self.texts for i in slices.all_includes(text))),
            folders=tuple(dict.fromkeys(self.folders)),
            pre_includes=before,
            missing_lines=tuple(self.missing_lines),
            guessed=tuple(dict.fromkeys(self.guessed)),
            library_dirs=tuple(dict.fromkeys(self.library_dirs)),
            dropped=frozenset(name for part in sliced for name in part.dropped),
            includer=job.includer if self.within else "",
            includer_text=self._includer_text() if self.within else "",
        )

    def _includer_text(self) -> str:
        text, at, pieces = self.texts[0], 0, []
        for include in slices.all_includes(text):
            if self.resolved.get((0, include.start)) == self.document:
                ends = "".join(re.findall(r"\r\n|\r|\n", text[include.start : include.end]))
                pieces += [text[at : include.start], f'#include "{DOCUMENT_HEADER}"{ends}']
                at = include.end
        return "".join([*pieces, text[at:]])

    def _begin_with_includer(self) -> None:
        """Put the includer's text in the document's place; the document is found by its include."""
        path = Path(os.path.normpath(os.path.abspath(self.job.includer)))
        try:
            good = self._inside(path) and path.is_file() and path.stat().st_size <= MAX_HEADER_BYTES
            text = path.read_bytes().decode("utf-8", "replace") if good else None
        except (OSError, ValueError):
            text = None
        if text is None:
            self.errors.append(CompileMessage(0, 0, "error", f"{path.name}, which includes this file, cannot be read"))
            return
        self.paths, self.texts, self.folder = [str(path)], [text], path.parent

    def _document_index(self) -> int:
        """Which of the texts is the document."""
        if not self.within:
            return 0
        real = os.path.realpath(self.document)
        return next((at for at, path in enumerate(self.paths) if os.path.realpath(path) == real), 0)

    def _line(self, at: int, include_line: int) -> int:
        """The line of the document that an include in one of the texts stands for."""
        if self.within:
            return include_line if self.paths[at] == self.document else max(self.lines[at], 0)
        return include_line if at == 0 else self.lines[at]

    def refusals_of_whole_text(self, includer_text: str = "") -> tuple[CompileMessage, ...]:
        """What is wrong with the includes of the text, host functions included, for a compiler that finds files itself."""
        self._refuse_in_whole(self.job.text)
        if includer_text:
            self.folder = Path(os.path.normpath(os.path.abspath(self.job.includer))).parent
            self._refuse_in_whole(includer_text)
        return tuple(self.errors)

    def _refuse_in_whole(self, text: str) -> None:
        self.paths, self.texts, self.lines = [self.job.path], [text], [0]
        self._look_for_tricks(0)
        for include in slices.all_includes(text):
            if include.kind is IncludeKind.REFUSED:
                self._refuse(0, include.line, include.reason)
                continue
            folders = () if include.angled else (self.folder, *self.include_dirs)
            paths = [Path(os.path.normpath(folder / include.name)) for folder in folders] or [Path("/") / include.name]
            if any(path.is_file() and path.is_relative_to(root) and not self._inside(path)
                   for path in paths for root in self.roots):  # fmt: skip
                self._refuse(0, include.line, f"#include of {include.name} {_BY_LINK}")
                continue
            outside = not any(path.is_relative_to(root) for path in paths for root in self.roots)
            if outside and (not include.angled or include.name.startswith(("/", "..")) or "/../" in include.name):
                self._refuse(0, include.line, f"#include of {include.name} leaves the workspace, so it is not read")

    def _included_first(self, path: str) -> bool:
        """Read a header that the build names with `-include`; one that is not there or not the project's is an error."""
        file = Path(path)
        try:
            good = file.is_file() and file.stat().st_size <= MAX_HEADER_BYTES and self._inside(file)
            text = file.read_bytes().decode("utf-8", "replace") if good else None
        except (OSError, ValueError):
            text = None
        if text is None:
            said = (
                f"{path}, which the build includes first, is not there or not in the workspace; build the project once"
            )
            self.errors.append(CompileMessage(0, 0, "error", said))
            return False
        if path not in self.paths:
            self.paths.append(path)
            self.texts.append(text)
            self.lines.append(0)
        return True

    def _look_for_tricks(self, at: int) -> None:
        line = self._line(at, 0)
        if slices.hides_includes(self.texts[at]):
            self._refuse(at, line, "a line continuation hides an #include; write it on a line of its own")
        for number, name in slices.probes_of(self.texts[at]):
            what = f"of {name} asks about files outside of the workspace" if name else "does not name a file plainly"
            self._refuse(at, self._line(at, number), f"__has_include {what}, which is not allowed")

    def _look_again(self, index: int, part: DeviceSlice, text: str) -> None:
        """Refuse what became an include only when code before it was cut away, as in `int host;#include "a.h"`."""
        known = [path for (at, _), path in self.resolved.items() if at == index and path]
        known += [include.name for include in part.includes if (index, include.start) not in self.resolved]
        if len(_INCLUDING.findall(slices.joined(text))) <= len(known):
            return
        stray = any(include.name not in known for include in slices.all_includes(text))
        if stray or slices.hides_includes(text):
            line = self._line(index, 0)
            self._refuse(index, line, "an #include stands behind other code; write it on a line of its own")

    def _take(self, at: int, include: Include) -> None:
        line = self._line(at, include.line)
        if include.kind is IncludeKind.REFUSED:
            self._refuse(at, line, include.reason)
            return
        if include.kind is IncludeKind.DEVICE:
            if include.name != "cub/cub.cuh" and self.find_system_header(include.name) is None:
                folder = self._library_dir(include.name)
                if folder is not None:
                    self.library_dirs.append(folder)
                elif not self._user(at, include, line):
                    self._leave_out(at, include, line)
            return
        if include.kind is IncludeKind.USER and not self._user(at, include, line):
            if include.angled and self.find_system_header(include.name) is not None:
                return
            self._leave_out(at, include, line)

    def _library_dir(self, name: str) -> Path | None:
        """Where a library lies that device code is made with, such as CUTLASS: named, installed, or kept in the project."""
        for folder in (*self.include_dirs, *self.usual_dirs, *library_include_dirs([name])):
            if (folder / name).is_file():
                return folder
        found = nearest_with(self.root, self.folder, name) if "/" in name else None
        return found if found is not None and self._inside(found) else None

    def _leave_out(self, at: int, include: Include, line: int) -> None:
        self.missing.append(include)
        self.missing_lines.append(line)
        self.resolved[at, include.start] = None

    def _refuse(self, at: int, line: int, reason: str) -> None:
        text = reason if self.paths[at] in (self.job.path, self.document) else f"{Path(self.paths[at]).name}: {reason}"
        self.errors.append(CompileMessage(line, 0, "error", text))

    def _user(self, at: int, include: Include, line: int) -> bool:
        folders = [] if include.angled else [Path(self.paths[at]).parent if at else self.folder]
        if self._from(at, include, line, (*folders, *self.include_dirs, *self.usual_dirs)):
            return True
        elsewhere = nearest_with(self.root, self.folder, include.name)
        if elsewhere is None or not self._from(at, include, line, (elsewhere,)):
            return False
        place = os.path.relpath(elsewhere, self.root)
        self.guessed.append(f"{include.name} was taken from {place}, as no flag says where it lies; add -I for another")
        self.folders.append(elsewhere)
        return True

    def _from(self, at: int, include: Include, line: int, folders: Sequence[Path]) -> bool:
        for folder in folders:
            path = Path(os.path.normpath(folder / include.name))
            try:
                status = path.stat()
            except (OSError, ValueError):
                continue
            if not any(path.is_relative_to(root) for root in self.roots):
                self._refuse(at, line, f"#include of {include.name} leaves the workspace, so it is not read")
                return True
            if not self._inside(path):
                self._refuse(at, line, f"#include of {include.name} {_BY_LINK}")
                return True
            if not stat.S_ISREG(status.st_mode):
                continue
            if status.st_size > MAX_HEADER_BYTES:
                self._refuse(at, line, f"the header {include.name} has {status.st_size} bytes, too many to compile")
                return True
            if str(path) not in self.paths:
                if len(self.paths) > MAX_HEADERS:
                    self._refuse(at, line, f"more than {MAX_HEADERS} headers are included")
                    return True
                try:
                    document = self.within and os.path.samefile(path, self.document)
                    text = self.job.text if document else path.read_bytes().decode("utf-8", "replace")
                except OSError:
                    continue
                if document:
                    path = Path(self.document)
                self.paths.append(str(path))
                self.texts.append(text)
                self.lines.append(line)
            if folder in self.usual_dirs:
                self.folders.append(folder)
            self.resolved[at, include.start] = str(path)
            return True
        return False

    def _rewrite(self, index: int, part: DeviceSlice) -> str:
        """The slice with each include of a user's header naming its path, those left out blanked, `constexpr` marked."""
        edits: list[tuple[int, int, str]] = [(at, at + len(CONSTEXPR), CONSTEXPR) for at in part.constexpr_at]
        for start, end, device in part.expansions:
            if part.text[start:end].strip():
                edits.append((start, end, device + "".join(re.findall(r"\r\n|\r|\n", part.text[start:end]))))
        for include in part.includes:
            ends = "".join(re.findall(r"\r\n|\r|\n", part.text[include.start : include.end]))
            if include.name == "cub/cub.cuh":
                edits.append((include.start, include.end, ends))
            elif (index, include.start) in self.resolved:
                path = self.resolved[index, include.start]
                edits.append((include.start, include.end, (f'#include "{path}"' if path else "") + ends))
        text, at, pieces = part.text, 0, []
        for start, end, new in sorted(edits):
            pieces += [text[at:start], new]
            at = end
        return "".join([*pieces, text[at:]])

    def _heavy(self, sliced: Sequence[DeviceSlice]) -> tuple[str, ...]:
        """Headers worth precompiling: those of cub, cooperative groups and libcu++ that no condition decides about."""
        names: set[str] = set()
        for part in sliced:
            configured = re.search(r"#[ \t]*define[ \t]+_*(?:CUB|CCCL|THRUST|CG|CUDA|LIBCUDACXX)_\w*", part.text)
            for include in part.includes:
                if include.kind is not IncludeKind.DEVICE or include in self.missing:
                    continue
                if include.name == "cub/cub.cuh":
                    names |= self._cub_headers(part)
                elif _HEAVY.match(include.name) and include.unconditional and not configured:
                    names.add(include.name)
        return tuple(sorted(names))

    def _cub_headers(self, part: DeviceSlice) -> set[str]:
        """`cub/cub.cuh` declares host functions, which NVRTC refuses; the headers of the classes that are used do not."""
        found: set[str] = set()
        for name in part.names:
            if (match := re.fullmatch(r"(Block|Warp|Thread)(?:[A-Z][a-z0-9]*)+", name)) is not None:
                snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
                header = f"cub/{match[1].lower()}/{snake}.cuh"
                if self.find_system_header(header) is not None:
                    found.add(header)
            elif name.endswith("InputIterator") or name.endswith("OutputIterator"):
                header = f"cub/iterator/{re.sub(r'(?<!^)(?=[A-Z])', '_', name).lower()}.cuh"
                if self.find_system_header(header) is not None:
                    found.add(header)
        return found or {"cub/util_type.cuh"}

    def _standard(self, sliced: Sequence[DeviceSlice], texts: Sequence[str]) -> tuple[str, ...]:
        """Headers of cuda/std for the names of the standard library that device code uses."""
        found: set[str] = set()
        for part, text in zip(sliced, texts, strict=True):
            qualified = re.findall(r"\bstd\s*::\s*([A-Za-z_]\w*)", slices.mask(text))
            found |= standard_headers(qualified, part.names, uses_std(part))
        return tuple(sorted(header for header in found if self.find_system_header(header) is not None))

    def _library(self, sliced: Sequence[DeviceSlice]) -> tuple[str, ...]:
        found: set[str] = set()
        dropped = [i.name for part in sliced for i in part.includes if i.kind is IncludeKind.HOST]
        for part in sliced:
            found |= library_headers(dropped, part.names)
        return tuple(sorted(header for header in found if self.find_system_header(header) is not None))


def uses_std(part: DeviceSlice) -> bool:
    """The text says `using namespace std`, which the slice has dropped."""
    return "using namespace std" in part.dropped


_HEAVY = re.compile(r"cub/|cooperative_groups|cuda/|cuComplex\.h|cute/|cutlass/")
