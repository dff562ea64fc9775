"""What nvcc itself makes of a file: its device code compiled as a whole, once per text, the answer kept in a folder.

The product need not compile what nvcc cannot, so this is what its share is measured against. nvcc gets every help: the
include folders that a project of this layout would name, PyTorch's where the text includes it, relaxed options, and
relocatable code where plain code fails. A header counts as compiled when it is so alone or by way of a file with it.
"""

import hashlib
import json
import os
import re
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from attrs import asdict, frozen

from dice_lsp import process
from dice_lsp.include_graph import Headers
from dice_lsp.worker.program import usual_include_dirs
from dice_lsp.workspace import workspace_root

ARCH = "sm_90"
_OPTIONS = (
    "-cubin",
    f"-arch={ARCH}",
    "-std=c++17",
    "-w",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-x",
    "cu",
)
_TORCH = re.compile(r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/")
_MISSING_TORCH = re.compile(r"fatal error: (?:(?:torch|ATen|c10|pybind11)/|Python\.h)")
_MORE_FOLDERS = 6
_LIMITS = process.Limits(niceness=15)


@frozen
class ByNvcc:
    """nvcc's answer for one file."""

    ok: bool
    error: str = ""
    """Its first error line."""
    entries: tuple[str, ...] = ()
    """Mangled names of the kernels that it made code for."""
    seconds: float = 0.0


class Baseline:
    """nvcc at `nvcc`, its answers kept below `folder`."""

    def __init__(self, nvcc: str, folder: Path, deadline_s: float = 600.0) -> None:
        self.nvcc, self.folder, self.deadline_s = nvcc, folder, deadline_s
        self._headers = Headers()
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, path: Path, text: str, *, only_known: bool = False) -> ByNvcc | None:
        """The answer for a file; with `only_known` None where it was not asked before."""
        options, kept = self._question(path, text)
        if kept.is_file():
            data = json.loads(kept.read_text())
            return ByNvcc(**{**data, "entries": tuple(data["entries"])})
        if only_known:
            return None
        answer = self._ask(path, options)
        for _ in range(_MORE_FOLDERS):
            if answer.ok:
                break
            folder = self._folder_with(answer.error, path)
            more = (
                [folder]
                if folder
                else [f"-I{folder}" for folder in torch_folders()]
                if _MISSING_TORCH.search(answer.error)
                else []
            )
            if set(more) <= set(options):
                break
            options += more
            answer = self._ask(path, options)
        if not answer.ok:
            # Device functions of other files, and kernels that launch kernels.
            again = self._ask(path, [*options, "-rdc=true"])
            answer = again if again.ok else answer
        kept.write_text(json.dumps(asdict(answer)))
        return answer

    def keep(self, path: Path, text: str, answer: ByNvcc) -> None:
        """Take an answer that was found elsewhere, on a machine with more cores for one."""
        self._question(path, text)[1].write_text(json.dumps(asdict(answer)))

    def _question(self, path: Path, text: str) -> tuple[list[str], Path]:
        """Options for a file, and where its answer is kept."""
        here = path.resolve().parent
        folders = [str(folder) for folder in usual_include_dirs(here, workspace_root(here))]
        read = self._headers.of(text, str(path.resolve()), tuple(folders))
        texts = text + "".join(Path(name).read_text("utf-8", "replace") for name in read.paths)
        if _TORCH.search(texts):
            folders += torch_folders()
        options = [*_OPTIONS, *(f"-I{folder}" for folder in folders)]
        key = hashlib.sha256("\0".join([text, read.digest, self.nvcc, *options]).encode("utf-8", "replace")).hexdigest()
        return options, self.folder / f"{key[:40]}.json"

    def _folder_with(self, error: str, path: Path) -> str | None:
        """The option for the folder of the project that has the header which nvcc misses, the nearest if several have it."""
        missing = re.search(r"fatal error: ([^:]+): No such file", error)
        if missing is None:
            return None
        here = path.resolve()
        found = [other for other in workspace_root(here.parent).rglob(Path(missing[1]).name) if other.is_file()]
        found = [other for other in found if other.as_posix().endswith(f"/{missing[1]}")]
        if not found:
            return None
        nearest = max(found, key=lambda other: len(os.path.commonpath([other, here])))
        return f"-I{str(nearest)[: -len(missing[1]) - 1]}"

    def _ask(self, path: Path, options: Sequence[str]) -> ByNvcc:
        with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
            out = Path(folder) / "out.cubin"
            done = process.run(
                [self.nvcc, *options, "-o", str(out), str(path.resolve())],
                deadline_s=self.deadline_s, limits=_LIMITS, cwd=str(path.resolve().parent),
            )  # fmt: skip
            if done.returncode == 0 and out.is_file():
                names = re.findall(rb"\0\.text\.([A-Za-z_]\w*)", out.read_bytes())
                return ByNvcc(True, "", tuple(sorted({name.decode() for name in names})), done.elapsed_s)
            lines = (done.stderr + done.stdout).decode("utf-8", "replace").splitlines()
            told = next((line for line in lines if re.search(r"\berror\b|fatal", line)), lines[-1] if lines else "")
            if done.timed_out:
                told = f"nvcc did not end within {self.deadline_s:g} s"
            return ByNvcc(False, told.strip()[:400], (), done.elapsed_s)


@lru_cache(maxsize=1)
def torch_folders() -> tuple[str, ...]:
    """Include folders of the PyTorch and the Python that run this; none where there is no PyTorch."""
    try:
        from torch.utils.cpp_extension import include_paths
    except ImportError:
        return ()
    return (*include_paths(), sysconfig.get_paths()["include"])


def by_includers(
    answers: Mapping[Path, ByNvcc | None], includers: Mapping[Path, Sequence[Path]], path: Path
) -> ByNvcc | None:
    """The answer for a file, a header's by way of a file that includes it where it does not compile alone."""
    own = answers.get(path)
    if own is not None and own.ok:
        return own
    for other in includers.get(path, ()):
        answer = answers.get(other)
        if answer is not None and answer.ok:
            return answer
    return own
