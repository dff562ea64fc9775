"""What is found on this machine, what is missing, and what to run.

`missing` is what the tool cannot work without, `note` what would make it better or does not work here.
"""

import asyncio
import platform
import shutil
import sys
from typing import Any

from attrs import frozen

from dice_lsp import __version__, process
from dice_lsp.capture import library
from dice_lsp.config import Settings
from dice_lsp.diffusion.client import DiffusionClient, FillUnavailable
from dice_lsp.flag_finder import shared_finder
from dice_lsp.process import ChildDied, ChildError
from dice_lsp.source.architectures import choose
from dice_lsp.source.flags import FlagRow
from dice_lsp.worker.client import WorkerClient
from dice_lsp.worker.compile import DEFAULT_ARCH


@frozen
class Finding:
    """One thing that was looked at."""

    state: str
    """`ok`, `note` or `missing`."""
    what: str
    found: str
    next_step: str = ""


@frozen
class FileFlags:
    """With which flags one file is compiled, and where each comes from."""

    origin: str
    """Whose flags of the project these are; empty without any."""
    flags: tuple[FlagRow, ...]
    """Every flag that was found, in order, and what becomes of it."""
    given: tuple[str, ...]
    """What a compiler is given, include folders and headers among it."""
    architecture: str
    """The one that is compiled for."""
    notes: tuple[str, ...]


async def examine_flags(path: str, settings: Settings) -> FileFlags:
    """Look for the flags of the file at `path`; starts the worker once, which knows the GPU and the compilers."""
    found = await asyncio.to_thread(shared_finder().find, path, settings)
    flags = found.flags
    asked, device, notes = settings.arch, "auto", [*found.notes, *flags.complaints]
    worker = WorkerClient(settings)
    try:
        hello = await worker.hello()
    except (ChildDied, ChildError, TimeoutError) as error:
        notes.append(f"{error}; run `dice-lsp worker` by hand and read what it says")
    else:
        device = hello["here"]["arch"]
        if asked == "auto":
            choice = choose(flags.architectures, device, hello["archs"], hello["toolkit"])
            asked, notes = choice.arch, [*notes, *filter(None, [choice.note])]
    finally:
        await worker.close()
    given = (
        *flags.flags,
        *(f"-I{folder}" for folder in flags.include_dirs),
        *(f"-include {h}" for h in flags.pre_includes),
    )
    named = next((flag.removeprefix("-arch=") for flag in flags.flags if flag.startswith("-arch=")), asked)
    return FileFlags(flags.origin, flags.rows, given, DEFAULT_ARCH if named == "auto" else named, tuple(notes))


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything; starts the worker and the model once, as a fill would."""
    findings = [_platform(), Finding("ok", "Python", f"{platform.python_version()}, dice-lsp {__version__}")]
    findings += await _worker(settings)
    findings.append(_capture())
    findings.append(await _checkpoint(settings))
    findings += _editors()
    return findings


def _platform() -> Finding:
    system = f"{platform.system()} {platform.machine()}"
    if sys.platform == "linux":
        return Finding("ok", "platform", system)
    if sys.platform == "darwin":
        return Finding("note", "platform", system, "macOS has no NVRTC and no CUDA: use a Linux machine over ssh")
    return Finding("missing", "platform", system, "use WSL 2: the server's children need Linux")


async def _worker(settings: Settings) -> list[Finding]:
    worker = WorkerClient(settings)
    try:
        hello = await worker.hello()
    except (ChildDied, ChildError, TimeoutError) as error:
        return [Finding("missing", "worker", str(error), "run `dice-lsp worker` by hand and read what it says")]
    finally:
        await worker.close()
    return [*_compilers(hello), *_devices(hello)]


def _compilers(hello: dict[str, Any]) -> list[Finding]:
    nvrtc, nvcc, cxx = hello["nvrtc"], hello["nvcc"], hello["host"].get("compiler")
    findings = []
    if nvrtc:
        headers = "with its headers" if hello.get("headers") else "without headers"
        findings.append(
            Finding("ok" if hello.get("headers") else "note", "device compiler", f"nvrtc {nvrtc} {headers}")
        )
    elif nvcc:
        findings.append(
            Finding("note", "device compiler", "nvcc only", "pip install nvidia-cuda-nvrtc: it is six times faster")
        )
    else:
        findings.append(Finding("missing", "device compiler", "none", "pip install nvidia-cuda-nvrtc"))
    if nvcc:
        findings.append(Finding("ok", "nvcc", str(nvcc)))
    else:
        findings.append(Finding("note", "nvcc", "not found", "needed only for files that NVRTC cannot take"))
    if cxx:
        findings.append(Finding("ok", "C++ compiler", str(cxx)))
        findings.append(
            _confinement("confinement", "every kernel that runs on the host", hello["host"].get("isolation"))
        )
    else:
        findings.append(
            Finding("missing", "C++ compiler", "none", "apt-get install g++: kernels run on the host with it")
        )
    return findings


def _confinement(what: str, of: str, isolation: str | None) -> Finding:
    """How what runs kernels is confined, in the words of `worker.confine`, where what is missing stands in brackets."""
    found = f"{isolation or 'limits'} around {of}"
    complete = bool(isolation) and "(" not in str(isolation)
    return Finding("ok" if complete else "note", what, found, "" if complete else "check only files that you trust")


def _devices(hello: dict[str, Any]) -> list[Finding]:
    findings = []
    for device in hello.get("devices", ()):
        findings.append(Finding("ok", f"GPU {device['index']}", f"{device['name']}, driver {device['driver']}"))
    if not findings:
        why = hello.get("no_device") or "no NVIDIA GPU"
        findings.append(Finding("note", "GPU", why, "kernels are verified on the host; times need a GPU"))
    else:
        backends = hello.get("backends", ())
        step = "" if backends else "pip install 'dice-lsp[gpu]'"
        findings.append(Finding("ok" if backends else "missing", "GPU back end", ", ".join(backends) or "none", step))
        if not hello.get("no_device"):
            findings.append(_confinement("GPU confinement", "the process of the GPU", hello.get("isolation")))
    findings.append(_sanitizer(hello))
    return findings


def _sanitizer(hello: dict[str, Any]) -> Finding:
    """compute-sanitizer, which looks at verified kernels in idle time and needs a GPU that kernels run on."""
    missing = str(hello["sanitizer_missing"])
    if not missing:
        return Finding("ok", "compute-sanitizer", str(hello["sanitizer"]))
    found, _, step = missing.partition(": ")
    return Finding("note", "compute-sanitizer", found, step or "verified kernels are not looked at by it")


def _capture() -> Finding:
    """What `dice-lsp capture` needs beside a GPU."""
    cupti = library.find_cupti()
    if cupti is None:
        return Finding("note", "CUPTI", "not found", "pip install nvidia-cuda-cupti: `dice-lsp capture` needs it")
    if library.find_compiler() is None:
        return Finding("note", "C compiler", "not found", "apt-get install gcc: `dice-lsp capture` needs it once")
    return Finding("ok", "CUPTI", str(cupti))


async def _checkpoint(settings: Settings) -> Finding:
    model = DiffusionClient(settings)
    try:
        info = await model.start()
    except (FillUnavailable, ChildDied, ChildError, TimeoutError) as error:
        return Finding("missing", "checkpoint", str(error), "dice-lsp model list")
    finally:
        await model.close()
    return Finding(
        "ok",
        "checkpoint",
        f"{info.checkpoint}: {info.parameters / 1e6:.1f} M parameters in {info.precision} on {info.device}",
    )


def _editors() -> list[Finding]:
    findings = []
    if (nvim := shutil.which("nvim")) is not None:
        version = process.run([nvim, "--version"], deadline_s=10).stdout.decode(errors="replace").splitlines()[0]
        number = version.rpartition("v")[2].split("-")[0].split(".")
        new_enough = (
            len(number) > 1 and all(part.isdigit() for part in number[:2]) and tuple(map(int, number[:2])) >= (0, 11)
        )
        step = "" if new_enough else "the plugin needs Neovim 0.11 or newer"
        findings.append(Finding("ok" if new_enough else "note", "Neovim", version, step))
    else:
        findings.append(Finding("note", "Neovim", "not found on PATH", "0.11 or newer works; see editors/nvim"))
    return findings
