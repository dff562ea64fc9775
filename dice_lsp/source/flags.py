"""Device compiler flags of a file: the project's and the settings', by an allow-list: a flag can run a program."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from attrs import evolve, frozen

from dice_lsp.config import Settings
from dice_lsp.source.nvcc_flags import PASSED_ON, Flag, Kind, architectures, read_flags

NEWEST_STANDARD = 20
"""What every compiler of CUDA 13 takes; NVRTC takes C++23 from 13.3 on."""
OLDEST_STANDARD = 17
"""CUDA's own headers need C++17 from version 13 on, so older standards of a project are raised to it."""


@frozen
class FlagRow:
    """One flag and what became of it, for a person."""

    written: str
    source: str
    """`dice.compile_flags`, or the file that it comes from."""
    fate: str


@frozen
class BuildFlags:
    """The flags that a project gives one file, as `flag_finder` finds them."""

    flags: tuple[Flag, ...]
    """Folders and headers among them with absolute paths, those that are not allowed marked."""
    source: str
    """The file that says so, for a person: relative to the workspace where it lies there."""
    origin: str
    """One clause on whose flags these are: `build/compile_commands.json, entry of main.cu, which includes this file`."""
    is_cuda: bool = True
    """Otherwise it is a C++ file's command, of which only macros, folders and the standard are used."""
    architectures: tuple[str, ...] = ()
    """Where the flags themselves name none."""
    libraries: frozenset[str] = frozenset()
    """Folders among `flags` that do not belong to the project: what they hold does not change while it is worked on."""
    includer: str = ""
    """The file that includes this one and whose flags these are; empty for an own entry."""

    @property
    def without_toolkit(self) -> bool:
        """The flags are for an editor's clang on a machine without CUDA: what they include first declares CUDA itself."""
        return any(flag.written in _WITHOUT_CUDA for flag in self.flags)


@frozen
class DeviceFlags:
    """Flags that the device compiler gets, include folders apart, and a sentence for each flag that was left out."""

    flags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    complaints: tuple[str, ...]
    pre_includes: tuple[str, ...] = ()
    """Absolute paths of headers that are included before the text."""
    architectures: tuple[str, ...] = ()
    """Those that the project builds for; none where it does not say, or a setting decides."""
    project_dirs: tuple[str, ...] = ()
    """The include folders in which files may change while the project is worked on; of `flag_finder` also those in which
    a compile looks without being told."""
    origin: str = ""
    """Where the project's flags come from; empty without any."""
    includer: str = ""
    rows: tuple[FlagRow, ...] = ()


_ALLOWED = (
    "allowed are -D -U -I -std -arch -maxrregcount -lineinfo --use_fast_math -ftz -fmad -prec-div -prec-sqrt -Xptxas"
)
_OF_CPP = "of a C++ file: only macros, folders and the standard are used"
_STAND_IN = "left out: clang is told to take no headers of CUDA, for which this one stands in"
_WITHOUT_CUDA = frozenset({"-nocudainc", "--no-cuda-inc", "-nogpuinc", "--cuda-host-only"})
_SEVERAL = frozenset({"-diag-suppress", "-diag-warn", "-diag-error", "-Xptxas"})
_ARCH = re.compile(r"(?:sm|compute)_\d{2,3}[af]?$|native$")
# A macro of one of these names would make the device compiler, or what stands in for it, read the text otherwise.
_TAKEN_NAMES = re.compile(
    r"dice_\w*|__CUDA_ARCH\w*|__CUDACC\w*|__NVCC__|__CUDA_API_VER\w*|__cplusplus|__has_\w+|defined|CUDART_VERSION|CUDA_VERSION"
    r"|__(?:global|device|host|shared|constant|managed|grid_constant|launch_bounds|restrict|forceinline|noinline)__"
    r"|threadIdx|blockIdx|blockDim|gridDim|warpSize|asm|__asm|__asm__|_Pragma"
)
# What stands in a macro is seen by the compiler only, after the text was looked through.
_NOT_IN_A_MACRO = re.compile(r"\b(?:__has_\w+|_Pragma|__pragma|asm|__asm|__asm__)\b|[#$`\\]|%:|\?\?=")


def device_flags(path: str, settings: Settings, build: BuildFlags | None = None) -> DeviceFlags:
    """The device flags of the file at `path`: those of the project's build, then those of the settings, which win.

    Of the project's, what does not concern device code is dropped without a word. A relative include folder of the
    settings is relative to the file's folder.
    """
    taken = _Taken()
    if build is not None:
        for flag in build.flags:
            taken.from_project(flag, build)
    complaints = _from_settings(taken, path, settings)
    return DeviceFlags(
        taken.flags,
        tuple(taken.folders),
        tuple(complaints),
        tuple(taken.headers),
        _architectures(taken, settings, build),
        tuple(folder for folder in taken.folders if build is None or folder not in build.libraries),
        "" if build is None else build.origin,
        "" if build is None else build.includer,
        tuple(taken.rows),
    )


class _Taken:
    """What has been taken so far: a later flag replaces an earlier one of the same meaning."""

    def __init__(self) -> None:
        self.by_meaning: dict[str, str] = {}
        self.folders: dict[str, None] = {}
        self.headers: dict[str, None] = {}
        self.rows: list[FlagRow] = []

    def put(self, flag: Flag) -> None:
        meaning = flag.text if flag.name in _SEVERAL else flag.name
        if flag.kind is Kind.MACRO:
            meaning = f"macro {_macro_name(flag.value)}"
        # Taken out first, so that it stands where it was said last.
        self.by_meaning.pop(meaning, None)
        self.by_meaning[meaning] = flag.text

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self.by_meaning.values())

    def from_project(self, flag: Flag, build: BuildFlags) -> None:
        fate = flag.kind.value
        if flag.kind is Kind.FOLDER:
            self.folders[flag.value] = None
        elif flag.kind is Kind.HEADER and build.without_toolkit:
            fate = _STAND_IN
        elif flag.kind is Kind.HEADER and build.is_cuda:
            self.headers[flag.value] = None
        elif flag.kind is Kind.MACRO:
            problem = _macro_problem(flag)
            if problem:
                fate = problem
            else:
                self.put(flag)
        elif flag.kind is Kind.DEVICE:
            put, fate = _translated(flag, build.is_cuda)
            if put is not None:
                self.put(put)
        elif flag.kind is Kind.HEADER:
            fate = _OF_CPP
        self.rows.append(FlagRow(flag.written, build.source, fate))


def _from_settings(taken: _Taken, path: str, settings: Settings) -> list[str]:
    base = PurePath(path).parent
    complaints: list[str] = []
    given = settings.compile_flags
    complaints += [f"flag {word!r} is not passed on: {_ALLOWED}" for word in given if not word.strip()]
    for flag in read_flags(given, "host"):
        row = FlagRow(flag.written, "dice.compile_flags", flag.kind.value)
        if flag.kind is Kind.FOLDER:
            taken.folders[str(base / flag.value)] = None
        elif flag.kind in (Kind.MACRO, Kind.DEVICE):
            taken.put(flag)
        elif flag.name == "-arch" and _ARCH.match(flag.value):
            taken.put(evolve(flag, kind=Kind.DEVICE))
        elif flag.kind is Kind.BAD or flag.name == "-arch":
            complaints.append(f"flag {flag.name} has a bad value {flag.value!r}; it is left out")
            row = evolve(row, fate=Kind.BAD.value)
        else:
            complaints.append(f"flag {flag.written!r} is not passed on: {_ALLOWED}")
            row = evolve(row, fate=flag.kind.value if flag.kind not in PASSED_ON else Kind.UNKNOWN.value)
        taken.rows.append(row)
    return complaints


def _architectures(taken: _Taken, settings: Settings, build: BuildFlags | None) -> tuple[str, ...]:
    decided = settings.arch != "auto" or any(flag.startswith("-arch=") for flag in taken.flags)
    if build is None or decided or not build.is_cuda:
        return ()
    return architectures(build.flags) or build.architectures


def _translated(flag: Flag, is_cuda: bool) -> tuple[Flag | None, str]:
    """A flag of the project as it is passed on, if it is, and what became of it."""
    if not is_cuda and flag.name != "-std":
        return None, _OF_CPP
    if flag.name == "-G":
        return (
            None,
            "left out: figures and times are of optimized code; set it in dice.compile_flags if they should not be",
        )
    if flag.name == "-std":
        number = int(flag.value[-2:])
        # 98 and 03 are older than 11, whatever the digits say.
        if number < OLDEST_STANDARD or number > 90 or flag.value.endswith("03"):
            raised = f"c++{OLDEST_STANDARD}"
            return evolve(flag, value=raised), f"raised to {raised}, which the headers of CUDA need"
        if number > NEWEST_STANDARD and not is_cuda:
            newest = f"c++{NEWEST_STANDARD}"
            return evolve(flag, value=newest), f"lowered to {newest}: it is a C++ file's, and CUDA may not take it"
    return flag, flag.kind.value


def _macro_name(text: str) -> str:
    return re.split(r"[=(]", text, maxsplit=1)[0].strip()


def _macro_problem(flag: Flag) -> str:
    """Why a macro of a project is left out; empty where it is not."""
    if _TAKEN_NAMES.fullmatch(_macro_name(flag.value)):
        return "left out: the compiler defines it itself"
    if flag.name == "-D" and _NOT_IN_A_MACRO.search(_after_name(flag.value)):
        return "left out: a macro of a project must hold no directive, pragma, assembly, or sign that a shell reads"
    return ""


def _after_name(text: str) -> str:
    return text.partition("=")[2]


def absolute(value: str, directory: str) -> str:
    """A path of a command line, which is relative to the folder where the command is run."""
    return os.path.normpath(os.path.join(directory, value))


def folders_of(flags: Iterable[Flag]) -> Sequence[str]:
    """The include folders among flags."""
    return [flag.value for flag in flags if flag.kind is Kind.FOLDER]
