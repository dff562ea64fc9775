"""Headers of libraries that a project names without saying where they lie: found where pip has put them.

A build of a PyTorch extension gets PyTorch's folders from PyTorch, and NVIDIA's libraries come as wheels of their own, so
neither stands in a project's flags.
"""

import contextlib
import importlib.util
import re
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

_TORCH = re.compile(r"(?:torch|ATen|c10|caffe2)/")
_PYBIND = re.compile(r"pybind11/|Python\.h$")
# What a header is named like -> the name that cuda.pathfinder knows its library by, and the wheel that brings it.
_NVIDIA = (
    (re.compile(r"curand\w*\.h$"), "curand", "nvidia-curand"),
    (re.compile(r"cublas\w*\.h$"), "cublas", "nvidia-cublas"),
    (re.compile(r"cufft\w*\.h$"), "cufft", "nvidia-cufft"),
    (re.compile(r"cusparse\w*\.h$"), "cusparse", "nvidia-cusparse"),
    (re.compile(r"cusolver\w*\.h$"), "cusolver", "nvidia-cusolver"),
    (re.compile(r"cudnn\w*\.h$"), "cudnn", "nvidia-cudnn-cu13"),
    (re.compile(r"nccl\w*\.h$"), "nccl", "nvidia-nccl-cu13"),
    (re.compile(r"npp\w*\.h$"), "npp", "nvidia-npp"),
    (re.compile(r"nvjpeg\w*\.h$"), "nvjpeg", "nvidia-nvjpeg"),
    (re.compile(r"cut(?:lass|e)/"), "cutlass", "nvidia-cutlass"),
)


def library_include_dirs(names: Iterable[str]) -> tuple[Path, ...]:
    """Include folders, of those that are installed, for the headers with these names."""
    found: list[Path] = []
    for name in names:
        found += _folders(name)
    return tuple(dict.fromkeys(found))


def next_step(name: str) -> str:
    """What a person can do about a header that was not found, as the rest of a sentence."""
    if _TORCH.match(name):
        return "install torch beside this tool, or add its include folders with -I"
    package = next((package for form, _, package in _NVIDIA if form.match(name)), None)
    if package is not None:
        return f"`pip install {package}` brings it, or add its folder to the compile flags with -I"
    return "add its folder to the compile flags with -I"


@lru_cache(maxsize=1024)
def _folders(name: str) -> tuple[Path, ...]:
    if _TORCH.match(name):
        root = _package("torch")
        folders = [] if root is None else [root / "include", root / "include/torch/csrc/api/include"]
        return tuple(folder for folder in (*folders, Path(sysconfig.get_paths()["include"])) if folder.is_dir())
    if _PYBIND.match(name):
        roots = [root / "include" for root in (_package("pybind11"), _package("torch")) if root is not None]
        return tuple(folder for folder in (*roots, Path(sysconfig.get_paths()["include"])) if folder.is_dir())
    library = next((library for form, library, _ in _NVIDIA if form.match(name)), None)
    if library is None:
        return ()
    with contextlib.suppress(
        Exception
    ):  # an optional helper package, which raises several kinds for what it does not know
        from cuda.pathfinder import find_nvidia_header_directory

        folder = find_nvidia_header_directory(library)
        if folder is not None:
            return (Path(folder),)
    return ()


def _package(name: str) -> Path | None:
    """The folder of an installed package, found without importing it."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return None
