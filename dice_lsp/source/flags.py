"""Device compiler flags of a file: from the settings, by an allow-list, since a flag can run a program or write a file."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from attrs import frozen

from dice_lsp.config import Settings


@frozen
class DeviceFlags:
    """Flags that the device compiler gets, include folders apart, and a sentence for each flag that was left out."""

    flags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    complaints: tuple[str, ...]


# Flags with a value: as written -> the spelling that NVRTC and nvcc both take.
_VALUED = {
    "-D": "-D", "--define-macro": "-D", "-U": "-U", "--undefine-macro": "-U", "-I": "-I", "--include-path": "-I",
    "-isystem": "-I", "-std": "-std", "--std": "-std", "-maxrregcount": "-maxrregcount", "--maxrregcount": "-maxrregcount",
    "-arch": "-arch", "--gpu-architecture": "-arch", "-ftz": "-ftz", "--ftz": "-ftz", "-prec-div": "-prec-div",
    "--prec-div": "-prec-div", "-prec-sqrt": "-prec-sqrt", "--prec-sqrt": "-prec-sqrt", "-fmad": "-fmad", "--fmad": "-fmad",
    "-diag-suppress": "-diag-suppress", "--diag-suppress": "-diag-suppress",
}  # fmt: skip
_PLAIN = {
    "--use_fast_math": "--use_fast_math", "-use_fast_math": "--use_fast_math", "-lineinfo": "-lineinfo",
    "--generate-line-info": "-lineinfo", "-G": "-G", "--device-debug": "-G", "--extra-device-vectorization":
    "--extra-device-vectorization", "-extra-device-vectorization": "--extra-device-vectorization", "-w": "-w",
    "--disable-warnings": "-w", "--extended-lambda": "--extended-lambda", "-extended-lambda": "--extended-lambda",
    "--expt-extended-lambda": "--extended-lambda", "-expt-extended-lambda": "--extended-lambda",
    "--expt-relaxed-constexpr": "--expt-relaxed-constexpr", "-expt-relaxed-constexpr": "--expt-relaxed-constexpr",
    "-rdc=true": "-rdc=true", "--relocatable-device-code=true": "-rdc=true", "-dc": "-rdc=true",
}  # fmt: skip
_SWITCHES = {"-ftz", "-prec-div", "-prec-sqrt", "-fmad"}
_ATTACHED = ("-D", "-U", "-I")
_MACRO = re.compile(r"[A-Za-z_]\w*(?:\([\w, .]*\))?(?:=[^\x00\r\n]*)?$")
_VALUES = {
    "-std": re.compile(r"(?:c|gnu)\+\+(?:03|11|14|17|20|23)$"),
    "-maxrregcount": re.compile(r"\d{1,3}$"),
    "-arch": re.compile(r"(?:sm|compute)_\d{2,3}[af]?$|native$"),
    "-D": _MACRO,
    "-U": re.compile(r"[A-Za-z_]\w*$"),
    "-I": re.compile(r"[^\x00\r\n]+$"),
    "-diag-suppress": re.compile(r"[\d,]+$"),
}


def device_flags(path: str, settings: Settings, compile_command: Iterable[str] = ()) -> DeviceFlags:
    """The device flags of the file at `path`.

    `compile_command` is the place for the arguments of the file's entry in a `compile_commands.json`; of those, flags
    that do not concern device code are dropped without a word. The settings come last, so they win. A relative include
    folder is relative to the file's folder.
    """
    base = PurePath(path).parent
    flags: list[str] = []
    folders: list[str] = []
    complaints: list[str] = []
    for source, silent in ((list(compile_command), True), (list(settings.compile_flags), False)):
        index = 0
        while index < len(source):
            name, value, used = _read(source, index)
            index += used
            if name is None:
                if not silent:
                    complaints.append(f"flag {source[index - used]!r} is not passed on: {_allowed()}")
            elif value is None:
                flags.append(name)
            elif not _good(name, value):
                complaints.append(f"flag {name} has a bad value {value!r}; it is left out")
            elif name == "-I":
                folder = str(base / value)
                if folder not in folders:
                    folders.append(folder)
            else:
                joined = f"{name}{value}" if name in ("-D", "-U") else f"{name}={value}"
                if name not in ("-D", "-U", "-diag-suppress"):
                    flags = [flag for flag in flags if not flag.startswith(f"{name}=")]
                flags.append(joined)
    return DeviceFlags(tuple(dict.fromkeys(flags)), tuple(folders), tuple(complaints))


def _read(source: Sequence[str], index: int) -> tuple[str | None, str | None, int]:
    """The flag at `index` in its one spelling, its value, and how many items it takes."""
    flag = source[index].strip()
    following = source[index + 1].strip() if index + 1 < len(source) else None
    if flag in _PLAIN:
        return _PLAIN[flag], None, 1
    name, equals, value = flag.partition("=")
    if equals and name in _VALUED:
        return _VALUED[name], value, 1
    for short in _ATTACHED:
        if flag.startswith(short) and len(flag) > len(short) and not flag.startswith("--"):
            return short, flag[len(short) :].strip(), 1
    if flag in _VALUED and following is not None:
        return _VALUED[flag], following, 2
    if " " in flag and flag.split()[0] in _VALUED:
        name, value = flag.split(maxsplit=1)
        return _VALUED[name], value, 1
    return None, None, 1


def _good(name: str, value: str) -> bool:
    if name in _SWITCHES:
        return value in ("true", "false")
    return _VALUES[name].match(value) is not None


def _allowed() -> str:
    return "allowed are -D -U -I -std -arch -maxrregcount -lineinfo --use_fast_math -ftz -fmad -prec-div -prec-sqrt"
