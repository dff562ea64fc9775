"""What a project says of how its files are compiled: `compile_commands.json`, `.clangd`, CMake's presets, flag files.

Everything here is text in and records out; who reads the files is `flag_finder`. All of these files may come from a
stranger, so what cannot be read is left out with a sentence, sizes are bounded, and nothing is ever executed.

The formats: clang's "JSON Compilation Database Format Specification", clangd's configuration (`If`, `CompileFlags`),
`cmake-presets(7)` versions 1 to 10. Bazel's extractors name files below an execroot, which is a folder of links to the
workspace; `in_workspace` finds the file that is meant.
"""

import heapq
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import regex
import yaml
from attrs import field, frozen

DATABASE = "compile_commands.json"
FLAG_FILE = "compile_flags.txt"
CLANGD = ".clangd"
PRESETS = ("CMakePresets.json", "CMakeUserPresets.json")
BUILD_FOLDER = re.compile(r"build.*|out|cmake-build-.*|\.vscode|_build|builddir")
"""Names of folders in which tools put a database, beside the sources."""
MAX_ENTRIES = 200_000
MAX_ARGUMENTS = 20_000
MAX_COMMAND = 1 << 18
"""Characters of one command: a shell's words are read one character at a time."""
MAX_CLANGD, MAX_BRACKETS, MAX_FRAGMENTS = 1 << 16, 256, 64
"""Characters, opening brackets and documents of a `.clangd`."""
PATTERN_S = 0.05
"""How long a pattern of a `.clangd` may be looked for: some take for ever."""
_EXECROOT = re.compile(r"^.*?/(?:execroot/[^/]+|__EXEC_ROOT__|__WORKSPACE_ROOT__)(?:/|$)")


@frozen
class Entry:
    """One command of a database."""

    file: str
    """Absolute, `..` taken out."""
    directory: str
    command: str | None
    """As one text, read by the rules of a shell; None where `arguments` are given."""
    given: tuple[str, ...]
    written: str
    """The file as it is written, for messages."""
    output: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words of the command. Raises ValueError for an open quote."""
        if self.command is None:
            return self.given
        return tuple(shlex.split(self.command))


@frozen
class Database:
    """The entries of one file, by the path of the file that is compiled."""

    entries: Mapping[str, tuple[Entry, ...]] = field(factory=dict)
    complaints: tuple[str, ...] = ()


def read_database(text: str, folder: str) -> Database:
    """The entries of a `compile_commands.json` that lies in `folder`.

    One entry after the other is decoded, because a whole large file at once would keep other threads waiting.
    """
    decoder = json.JSONDecoder()
    found: dict[str, list[Entry]] = {}
    at = _blank(text, 0)
    if at == len(text) or text[at] != "[":
        return Database({}, ("it is no list of commands",))
    at = _blank(text, at + 1)
    count = bad = 0
    complaints: list[str] = []
    while at < len(text) and text[at] != "]":
        try:
            item, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            line = text.count("\n", 0, at) + 1
            complaints.append(f"it is not JSON from line {line} on; the {count} commands before are used")
            break
        entry = _entry(item, folder)
        if entry is None:
            bad += 1
        else:
            found.setdefault(entry.file, []).append(entry)
        count += 1
        if count >= MAX_ENTRIES:
            complaints.append(f"it has more than {MAX_ENTRIES} commands; the others are left out")
            break
        at = _blank(text, at)
        if at < len(text) and text[at] == ",":
            at = _blank(text, at + 1)
    if bad:
        complaints.append(
            f"{bad} of its {count} entries have no directory, file or command, or one that is too long, so they are left out"
        )
    return Database({path: tuple(entries) for path, entries in found.items()}, tuple(complaints))


def _blank(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


_SPACE = re.compile(r"[ \t\r\n\ufeff]*")


def _entry(item: Any, folder: str) -> Entry | None:
    if not isinstance(item, dict):
        return None
    directory, file = item.get("directory"), item.get("file")
    command, arguments = item.get("command"), item.get("arguments")
    if not isinstance(file, str) or not file or "\0" in file or not isinstance(directory or "", str):
        return None
    base = os.path.normpath(os.path.join(folder, directory or ""))
    words: tuple[str, ...] = ()
    if isinstance(arguments, list) and all(isinstance(word, str) for word in arguments):
        words, command = tuple(arguments[:MAX_ARGUMENTS]), None
    elif not isinstance(command, str) or len(command) > MAX_COMMAND:
        return None
    output = item.get("output")
    path = in_workspace(os.path.normpath(os.path.join(base, file)), folder)
    return Entry(path, base, command, words, file, output if isinstance(output, str) else "")


def in_workspace(path: str, folder: str) -> str:
    """The file of the workspace that a path below one of Bazel's execroots stands for; any other path as it is."""
    found = _EXECROOT.match(path)
    return path if found is None else os.path.normpath(os.path.join(folder, path[found.end() :]))


def words_of_response_file(text: str) -> tuple[str, ...]:
    """The words of a response file: blanks and line ends separate, quotes and backslashes as in a shell.

    Raises ValueError for an open quote.
    """
    return tuple(shlex.split(re.sub(r"\\\r?\n", " ", text)))[:MAX_ARGUMENTS]


def words_of_flag_file(text: str) -> tuple[str, ...]:
    """The flags of a `compile_flags.txt`: one a line."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())[:MAX_ARGUMENTS]


# .clangd


@frozen
class Fragment:
    """One document of a `.clangd`."""

    matches: tuple[str, ...]
    """Patterns of which one must match the path, relative to the folder of the `.clangd`."""
    excludes: tuple[str, ...]
    add: tuple[str, ...]
    remove: tuple[str, ...]
    database: str | None
    """`None` for no database, `Ancestors` for the usual search, else a folder; absent: None."""


def read_clangd(text: str) -> tuple[tuple[Fragment, ...], tuple[str, ...]]:
    """The fragments of a `.clangd`, and a sentence for what could not be read."""
    fragments: list[Fragment] = []
    # The parser takes time with the square of what is open at once, and of a stranger's file that could be all of it.
    if len(text) > MAX_CLANGD or text.count("[") + text.count("{") > MAX_BRACKETS:
        return (), ("it is longer than any such file has to be, so it is left out",)
    try:
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and len(fragments) < MAX_FRAGMENTS:
                fragments.append(_fragment(document))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        return tuple(fragments), (f"it is not YAML{where}, so what follows is left out",)
    return tuple(fragments), ()


def _fragment(document: Mapping[Any, Any]) -> Fragment:
    condition, flags = document.get("If"), document.get("CompileFlags")
    condition = condition if isinstance(condition, dict) else {}
    flags = flags if isinstance(flags, dict) else {}
    database = flags.get("CompilationDatabase")
    return Fragment(
        _strings(condition.get("PathMatch")),
        _strings(condition.get("PathExclude")),
        _strings(flags.get("Add")),
        _strings(flags.get("Remove")),
        database if isinstance(database, str) else None,
    )


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def applies(fragment: Fragment, relative_path: str) -> bool | None:
    """Whether a fragment is for a file; None when a pattern cannot be read or takes too long."""
    try:
        if fragment.matches and not any(_matches(pattern, relative_path) for pattern in fragment.matches):
            return False
        return not any(_matches(pattern, relative_path) for pattern in fragment.excludes)
    except (regex.error, TimeoutError, RecursionError):
        return None


def _matches(pattern: str, path: str) -> bool:
    return regex.fullmatch(pattern, path, timeout=PATTERN_S) is not None


def edited(arguments: Sequence[str], fragments: Iterable[Fragment]) -> tuple[str, ...]:
    """A command after what `.clangd` files remove from it and add to it, in their order.

    `Remove` takes a flag's exact name with its value, as a word of its own or behind `=`; `*` at the end stands for
    anything, and one letter such as `-I` for all that begin with it.
    """
    words = list(arguments)
    for fragment in fragments:
        for pattern in fragment.remove:
            words = _without(words, pattern)
        words += fragment.add
    return tuple(words)


_TAKES_A_WORD = frozenset(
    "-I -D -U -isystem -iquote -include -std --std -arch -gencode -code -x -Xcompiler -Xptxas -o -MF -MT -MQ".split()
) | {"--generate-code", "--gpu-architecture", "--compiler-options", "--options-file", "-ccbin", "--compiler-bindir"}


def _without(words: Sequence[str], pattern: str) -> list[str]:
    star = pattern.endswith("*")
    stem = pattern[:-1] if star else pattern
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        attached = (
            len(stem) == 2 and stem[0] == "-" and stem in ("-I", "-D", "-U", "-L", "-l") and word.startswith(stem)
        )
        if word == stem or (star and word.startswith(stem)) or word.startswith(f"{stem}=") or attached:
            skip = word in _TAKES_A_WORD
            continue
        kept.append(word)
    return kept


# CMake's presets


@frozen
class Preset:
    """What a configure preset says that matters here."""

    name: str
    binary_folder: str | None
    """Absolute."""
    architectures: tuple[str, ...]
    """As `-arch` takes them."""
    flags: tuple[str, ...]
    """`CMAKE_CUDA_FLAGS` and the standard."""


def read_presets(folder: str, read: Callable[[str], str | None]) -> tuple[tuple[Preset, ...], tuple[str, ...]]:
    """The configure presets of a project folder, and what could not be read; `read` gives the text of a file or None."""
    complaints: list[str] = []
    raw: dict[str, tuple[Mapping[str, Any], str]] = {}
    waiting = [os.path.join(folder, name) for name in PRESETS]
    seen: set[str] = set()
    while waiting and len(seen) < 32:
        path = waiting.pop(0)
        if path in seen or (text := read(path)) is None:
            continue
        seen.add(path)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            complaints.append(f"{path} is not JSON, so it is left out")
            continue
        if not isinstance(data, dict):
            continue
        here = os.path.dirname(path)
        for item in data.get("configurePresets") or ():
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                raw.setdefault(item["name"], (item, here))
        included = data.get("include")
        waiting += [os.path.join(here, name) for name in included or () if isinstance(name, str) and "$" not in name]
    presets = []
    for name, (item, here) in raw.items():
        if item.get("hidden") is not True:
            presets.append(_preset(name, _inherited(name, raw, ()), folder, here))
    return tuple(presets), tuple(complaints)


def _inherited(name: str, raw: Mapping[str, tuple[Mapping[str, Any], str]], above: tuple[str, ...]) -> dict[str, Any]:
    """A preset with what it inherits; the earlier of several parents wins."""
    item = raw[name][0]
    merged: dict[str, Any] = {}
    parents = item.get("inherits") or ()
    parents = (parents,) if isinstance(parents, str) else parents if isinstance(parents, list) else ()
    for parent in reversed(parents):
        if isinstance(parent, str) and parent in raw and parent not in above and len(above) < 16:
            inherited = _inherited(parent, raw, (*above, name))
            variables = {**merged.get("cacheVariables", {}), **inherited.get("cacheVariables", {})}
            merged = {**merged, **inherited, "cacheVariables": variables}
    own = item.get("cacheVariables")
    variables = {**merged.get("cacheVariables", {}), **(own if isinstance(own, dict) else {})}
    return {**merged, **item, "cacheVariables": variables}


def _preset(name: str, item: Mapping[str, Any], folder: str, here: str) -> Preset:
    variables = item["cacheVariables"]
    binary = item.get("binaryDir")
    place = None
    if isinstance(binary, str):
        words = {
            "sourceDir": folder, "sourceParentDir": os.path.dirname(folder), "sourceDirName": PurePath(folder).name,
            "presetName": name, "hostSystemName": "Linux", "fileDir": here, "dollar": "$", "pathListSep": ":",
            "generator": str(item.get("generator", "")),
        }  # fmt: skip
        expanded = re.sub(r"\$\{(\w+)\}", lambda match: words.get(match[1], match[0]), binary)
        # What an environment variable decides is not known here.
        if "$" not in expanded and "\0" not in expanded:
            place = os.path.normpath(os.path.join(folder, expanded))
    flags: list[str] = []
    standard = _variable(variables, "CMAKE_CUDA_STANDARD")
    if standard in ("11", "14", "17", "20", "23"):
        flags.append(f"-std=c++{standard}")
    try:
        flags += shlex.split(_variable(variables, "CMAKE_CUDA_FLAGS"))
    except ValueError:
        flags = flags[:1]
    return Preset(name, place, cmake_architectures(_variable(variables, "CMAKE_CUDA_ARCHITECTURES")), tuple(flags))


def _variable(variables: Mapping[str, Any], name: str) -> str:
    value = variables.get(name)
    if isinstance(value, dict):
        value = value.get("value")
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def cmake_architectures(value: str) -> tuple[str, ...]:
    """`CMAKE_CUDA_ARCHITECTURES` (`80-real;90a`, `native`) as architectures."""
    found = []
    for part in re.split(r"[;,\s]+", value):
        if (match := re.fullmatch(r"(\d{2,3}[af]?)(?:-real|-virtual)?", part)) is not None:
            found.append(f"sm_{match[1]}")
        elif part in ("native", "all", "all-major"):
            found.append(part)
    return tuple(dict.fromkeys(found))


# Whose flags, where a file has none


def nearest(path: str, others: Iterable[str], most: int) -> tuple[str, ...]:
    """Other files by how likely their flags are those of `path`, best first: the same name, then the closest folder.

    What is in a name before the first dot is compared without its last part of a test (`scale_test.cu` for `scale.cuh`).
    """
    own = PurePath(path)
    parts, stem = own.parts[:-1], own.name.split(".")[0].lower()

    def distance(other: str) -> tuple[int, int, int, str]:
        theirs = PurePath(other)
        common = 0
        for mine, their in zip(parts, theirs.parts[:-1], strict=False):
            if mine != their:
                break
            common += 1
        away = len(parts) + len(theirs.parts) - 1 - 2 * common
        name = theirs.name.split(".")[0].lower()
        kin = 0 if name == stem else 1 if name.startswith(stem) or stem.startswith(name) else 2
        return (kin if kin == 0 else 1), away, kin, other

    return tuple(heapq.nsmallest(most, others, key=distance))
