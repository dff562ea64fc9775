"""Finds what a project says of how a file is compiled, and reads it: the nearest database, `.clangd`, presets, flag files.

The order is clangd's as far as there is one: upwards from the file, in each folder its own `compile_commands.json` and
those of its build folders, the newest first; then a `compile_flags.txt`. A file without an entry gets the flags of the
nearest file that includes it, else those of the nearest file of its kind, and it is said which.

A project may come from a stranger. Of its commands only flags of a list are taken; no program is started, none named by
it is looked at, and include folders outside of the workspace count only where headers are kept (`_place`).
"""

import functools
import os
import stat
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath

from attrs import evolve, frozen

from dice_lsp.config import Settings
from dice_lsp.include_graph import Headers
from dice_lsp.source import compile_commands
from dice_lsp.source.compile_commands import (
    BUILD_FOLDER,
    CLANGD,
    DATABASE,
    FLAG_FILE,
    PRESETS,
    Database,
    Entry,
    Fragment,
    Preset,
    applies,
    edited,
    nearest,
    read_clangd,
    read_database,
    read_presets,
    words_of_flag_file,
    words_of_response_file,
)
from dice_lsp.source.flags import BuildFlags, DeviceFlags, absolute, device_flags, folders_of
from dice_lsp.source.nvcc_flags import Dialect, Flag, Kind, compiles_cuda, is_nvcc, read_flags
from dice_lsp.source.positions import decode_bytes
from dice_lsp.workspace import nearest_with, usual_include_dirs, workspace_root

MAX_DATABASE_BYTES = 128 << 20
MAX_TEXT_BYTES = 1 << 18
"""Of every other file that is read here."""
MAX_LEVELS = 40
MAX_BUILD_FOLDERS = 64
MAX_CANDIDATES = 128
"""Files that are asked whether they include a header."""
MAX_RESPONSE_DEPTH = 4
MAX_UNSAID_ROUNDS = 4
"""A header that is found may include others that are not."""
DATABASES_KEPT = 8
FRESH_S = 2.0
"""How long what was found is taken for granted; a watch ends it earlier with `forget`."""
KIN_FRESH_S = 60.0
"""The same for whose flags a file without an entry gets."""
SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".C", ".c")
_HEADERS = (".cuh", ".h", ".hpp", ".hxx", ".hh", ".inl", ".inc", ".ipp", ".tpp")
_SYSTEM = ("/usr", "/opt", sys.prefix, sys.base_prefix)
_INCLUDE_FOLDERS = frozenset({"include", "includes", "inc", "headers"})
_NEVER = ("/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/var")
_SECRET = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".password-store", ".mozilla"})


@frozen
class FoundFlags:
    """The flags of one file, and the files that decided them."""

    flags: DeviceFlags
    read: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    """Files that would decide if they were there."""
    levels: frozenset[str] = frozenset()
    """Folders in which a new build folder would matter."""
    notes: tuple[str, ...] = ()
    """One sentence for each thing that could not be read or was not taken."""

    @property
    def folders(self) -> frozenset[str]:
        """Those of the files: what to watch."""
        return self.levels | {os.path.dirname(path) for path in (*self.read, *self.missing)}

    @property
    def digest(self) -> str:
        """Changes exactly when what a compiler is told does."""
        flags = self.flags
        return repr((flags.flags, flags.include_dirs, flags.pre_includes, flags.architectures))


@frozen
class _Loaded:
    """A database, and what is asked of it again and again."""

    path: str
    stamp: tuple[int, int]
    database: Database
    by_name: dict[str, list[str]]
    cuda: tuple[str, ...]
    """Files with an entry that compiles CUDA."""
    others: tuple[str, ...]


@frozen
class _Choice:
    """Whose command a file gets."""

    entry: Entry
    loaded: _Loaded
    how: str
    """`entry`, `includer` or `sibling`."""
    several: int = 1


class _Look:
    """What one search has read and looked for in vain."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.missing: set[str] = set()
        self.levels: set[str] = set()
        self.notes: list[str] = []


class FlagFinder:
    """Long-lived; may be used by several threads. All of it reads files, so never on a loop."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._headers = Headers()
        self._databases: OrderedDict[str, _Loaded] = OrderedDict()
        self._texts: dict[str, tuple[tuple[int, int], str]] = {}
        self._unsaid: dict[tuple[str, tuple[str, ...]], tuple[float, tuple[str, ...]]] = {}
        self._places: dict[tuple[str, str, Kind, str], tuple[str, Kind]] = {}
        self._kin: dict[tuple[str, tuple[int, int], str], tuple[float, _Choice | None]] = {}
        self._found: OrderedDict[tuple[str, str], tuple[float, tuple[BuildFlags | None, FoundFlags]]] = OrderedDict()

    def find(self, path: str, settings: Settings) -> FoundFlags:
        """The flags of the file at `path`: those of its project under those of the settings."""
        path = os.path.normpath(os.path.abspath(path))
        key = (path, settings.compile_commands)
        with self._lock:
            known = self._found.pop(key, None)
            if known is None or time.monotonic() - known[0] > FRESH_S:
                known = (time.monotonic(), self._search(path, settings.compile_commands))
            self._found[key] = known
            while len(self._found) > 256:
                self._found.popitem(last=False)
        build, found = known[1]
        flags = device_flags(path, settings, build)
        return evolve(found, flags=evolve(flags, project_dirs=(*flags.project_dirs, *self._unsaid_dirs(path, flags))))

    def _unsaid_dirs(self, path: str, flags: DeviceFlags) -> tuple[str, ...]:
        """Folders in which a compile looks for headers that no flag places, as `worker.program` does.

        They are the usual ones, then those of the project that have a header of the name, if one is nearest.
        """
        key = (path, flags.project_dirs)
        with self._lock:
            known = self._unsaid.get(key)
            if known is None or time.monotonic() - known[0] > FRESH_S:
                folder = Path(path).parent
                root = workspace_root(folder)
                found = dict.fromkeys(map(str, usual_include_dirs(folder, root)))
                for _ in range(MAX_UNSAID_ROUNDS):
                    names = self._headers.unplaced(path, (*flags.project_dirs, *found))
                    places = [place for name in names if (place := nearest_with(root, folder, name)) is not None]
                    if found.keys() >= set(map(str, places)):
                        break
                    found |= dict.fromkeys(map(str, places))
                known = self._unsaid[key] = (time.monotonic(), tuple(found))
            return known[1]

    def forget(self) -> None:
        """Look at the disk again the next time."""
        with self._lock:
            self._found.clear()
            self._kin.clear()
            self._unsaid.clear()
            self._places.clear()

    # Searching

    def _search(self, path: str, wanted: str) -> tuple[BuildFlags | None, FoundFlags]:
        look = _Look()
        build = None
        if wanted != "off" and not path.endswith((".py", ".ipynb")):
            build = self._build_flags(path, wanted, look)
        missing = frozenset(file for file in look.missing if os.path.dirname(file) in look.levels)
        found = FoundFlags(
            DeviceFlags((), (), ()), frozenset(look.read), missing, frozenset(look.levels),
            tuple(dict.fromkeys(look.notes)),
        )  # fmt: skip
        return build, found

    def _build_flags(self, path: str, wanted: str, look: _Look) -> BuildFlags | None:
        root = workspace_root(Path(path).parent)
        levels = _levels(path, root)
        look.levels |= {str(level) for level in levels if level.is_relative_to(root)}
        fragments = self._fragments(path, levels, root, look)
        place = next((each for _, each in reversed(fragments) if each is not None), None)
        edits = [fragment for fragment, _ in fragments]
        if wanted not in ("auto", ""):
            place = wanted
        choice, all_files, preset = None, None, None
        if place != "None":
            places = None if place in (None, "Ancestors") else _named(place)
            choice, all_files, preset = self._lookup(path, levels, places, root, look)
        if choice is not None:
            return self._of_entry(path, choice, edits, preset, root, look)
        includer = self._includer_nearby(path, root) if path.endswith(_HEADERS) else None
        said = "" if includer is None else f", and {_shown(includer, root)} includes this file"
        if all_files is not None:
            words, source = all_files
            name = _shown(source, root)
            flags = self._flags_of(edited(words, edits), os.path.dirname(source), "host", root, look)
            return BuildFlags(flags, name, f"{name}, for all files below it{said}", includer=includer or "",
                              libraries=_libraries(flags, root))  # fmt: skip
        if preset is not None or edits:
            source = preset[1] if preset is not None else str(levels[0] / CLANGD)
            words = edited(() if preset is None else preset[0].flags, edits)
            name = f"preset {preset[0].name} of {_shown(preset[1], root)}" if preset is not None else CLANGD
            flags = self._flags_of(words, os.path.dirname(source), "nvcc", root, look)
            return BuildFlags(flags, name, f"{name}{said}", architectures=() if preset is None else preset[0].architectures,
                              includer=includer or "", libraries=_libraries(flags, root))  # fmt: skip
        if includer is not None:
            name = _shown(includer, root)
            return BuildFlags((), "", f"no flags of a build; {name} includes this file", includer=includer)
        return None

    def _lookup(
        self, path: str, levels: Sequence[Path], places: Sequence[Path] | None, root: Path, look: _Look
    ) -> tuple[_Choice | None, tuple[tuple[str, ...], str] | None, tuple[Preset, str] | None]:
        """Whose command, else the flags for all files of a folder, else a preset; the nearest of each."""
        fallback: list[_Loaded] = []
        all_files: tuple[tuple[str, ...], str] | None = None
        preset: tuple[Preset, str] | None = None
        for level in levels:
            here, chosen = self._presets(level, look)
            preset = preset or chosen
            files = [level / DATABASE, *_in_build_folders(level), *here] if places is None else places
            loaded = [each for file in _newest_first(files, look) if (each := self._database(file, look)) is not None]
            for each in loaded:
                entries = self._entries(each, path)
                if entries:
                    return _Choice(_preferred(entries), each, "entry", len(entries)), all_files, preset
            fallback = fallback or loaded
            if places is not None:
                break
            if all_files is None and (text := self._text(level / FLAG_FILE, look)) is not None:
                all_files = words_of_flag_file(text), str(level / FLAG_FILE)
                if not fallback:
                    break
        for each in fallback:
            if (choice := self._other(each, path, root, look)) is not None:
                return choice, all_files, preset
        return None, all_files, preset

    def _entries(self, loaded: _Loaded, path: str) -> tuple[Entry, ...]:
        entries = loaded.database.entries
        if path in entries:
            return entries[path]
        real = os.path.realpath(path)
        if real in entries:
            return entries[real]
        # Links, such as those of Bazel's execroot, have the file's own name at their end.
        for other in loaded.by_name.get(os.path.basename(path), ())[:MAX_CANDIDATES]:
            if os.path.realpath(other) == real:
                return entries[other]
        return ()

    def _other(self, loaded: _Loaded, path: str, root: Path, look: _Look) -> _Choice | None:
        """The file of a database that includes this one, else the nearest one of its kind."""
        # Hundreds of files are asked for their includes, so the answer is kept longer than what is only looked up.
        key = (loaded.path, loaded.stamp, path)
        known = self._kin.get(key)
        if known is None or time.monotonic() - known[0] > KIN_FRESH_S:
            known = self._kin[key] = (time.monotonic(), self._kin_of(loaded, path, root))
        if known[1] is not None and known[1].how == "includer":
            look.read.add(known[1].entry.file)
        return known[1]

    def _kin_of(self, loaded: _Loaded, path: str, root: Path) -> _Choice | None:
        near = [*nearest(path, loaded.cuda, MAX_CANDIDATES)]
        if path.endswith(_HEADERS):
            near += nearest(path, loaded.others, MAX_CANDIDATES)
        candidates = ((other, self._project_dirs(loaded, other, root)) for other in near)
        includer = self._headers.includer(path, candidates)
        if includer is not None:
            return _Choice(_preferred(loaded.database.entries[includer]), loaded, "includer")
        siblings = near or nearest(path, loaded.others, 1)
        if not siblings:
            return None
        return _Choice(_preferred(loaded.database.entries[siblings[0]]), loaded, "sibling")

    def _project_dirs(self, loaded: _Loaded, path: str, root: Path) -> tuple[str, ...]:
        """The include folders of an entry that lie in the workspace."""
        entry = _preferred(loaded.database.entries[path])
        try:
            flags = self._flags_of(entry.arguments, entry.directory, "host", root, _Look())
        except ValueError:
            return ()
        libraries = _libraries(flags, root)
        return tuple(folder for folder in folders_of(flags) if folder not in libraries)

    def _includer_nearby(self, path: str, root: Path) -> str | None:
        """A source file that includes a header, looked for around it where no database lists files."""
        here = Path(path).parent
        folders = [here, here.parent] if here.is_relative_to(root) and here != root else [here]
        with_subfolders = folders + [each for folder in folders for each in _subfolders(folder)]
        files = [str(file) for folder in dict.fromkeys(with_subfolders) for file in _source_files(folder)]
        near = nearest(path, (file for file in files if file.endswith(".cu")), MAX_CANDIDATES)
        others = nearest(path, (file for file in files if not file.endswith(".cu")), MAX_CANDIDATES)
        dirs = tuple(str(folder) for folder in folders)
        return self._headers.includer(path, ((file, dirs) for file in (*near, *others)[:MAX_CANDIDATES]))

    # Reading

    def _of_entry(
        self,
        path: str,
        choice: _Choice,
        edits: Sequence[Fragment],
        preset: tuple[Preset, str] | None,
        root: Path,
        look: _Look,
    ) -> BuildFlags | None:
        entry, database = choice.entry, _shown(choice.loaded.path, root)
        try:
            words = entry.arguments
        except ValueError:
            look.notes.append(f"{database}: the command of {entry.written} has an open quote, so it is left out")
            return None
        words = edited(words, edits)
        is_cuda = compiles_cuda(words, entry.file)
        dialect: Dialect = "nvcc" if is_nvcc(words) else "clang" if is_cuda else "host"
        flags = self._flags_of(words, entry.directory, dialect, root, look)
        name = _shown(entry.file, root)
        if choice.how == "entry":
            whose = f"one of {choice.several} entries of this file" if choice.several > 1 else "entry of this file"
        elif choice.how == "includer":
            whose = f"entry of {name}, which includes this file"
        else:
            whose = f"entry of {name}, the nearest one, since this file has none"
        outside = list(dict.fromkeys(flag.value for flag in flags if flag.kind is Kind.OUTSIDE))
        look.notes += [
            f"{database}: {value} lies outside of the workspace and is no folder of headers, so it is left out; name it "
            "in dice.compile_flags with -I if it is yours"
            for value in outside
        ]
        return BuildFlags(
            flags, database, f"{database}, {whose}", is_cuda, () if preset is None else preset[0].architectures,
            _libraries(flags, root), entry.file if choice.how == "includer" else "",
        )  # fmt: skip

    def _flags_of(
        self, words: Sequence[str], directory: str, dialect: Dialect, root: Path, look: _Look, depth: int = 0
    ) -> tuple[Flag, ...]:
        """The flags of a command, response files read, folders and headers with the place that they mean."""
        flags: list[Flag] = []
        for flag in read_flags(words, dialect):
            if flag.kind in (Kind.FOLDER, Kind.HEADER):
                flags.append(self._placed(flag, directory, root))
            elif flag.kind is Kind.FILE and depth < MAX_RESPONSE_DEPTH:
                file = absolute(flag.value, directory)
                inner = self._response_file(file, directory, root, look)
                flags += self._flags_of(inner, directory, dialect, root, look, depth + 1)
            else:
                flags.append(flag)
        return tuple(flags)

    def _placed(self, flag: Flag, directory: str, root: Path) -> Flag:
        """A folder or header of a command with its absolute path, marked where it may not or need not be used."""
        key = (flag.value, directory, flag.kind, str(root))
        known = self._places.get(key)
        if known is None:
            path = absolute(flag.value, directory)
            if not os.path.exists(path):
                path = compile_commands.in_workspace(path, str(root))
            known = self._places[key] = path, _place(path, root, flag.kind)
        return evolve(flag, value=known[0], kind=known[1])

    def _response_file(self, file: str, directory: str, root: Path, look: _Look) -> tuple[str, ...]:
        """The words of a response file of the build; of one elsewhere nothing is read."""
        if not any(_below(file, place) for place in (directory, str(root))):
            look.notes.append(f"{file} lies outside of the workspace and its build folder, so its flags are left out")
            return ()
        text = self._text(Path(file), look)
        if text is None:
            look.notes.append(
                f"{file}, which a compile command names for its flags, cannot be read; build the project once"
            )
            return ()
        try:
            return words_of_response_file(text)
        except ValueError:
            look.notes.append(f"{file} has an open quote, so its flags are left out")
            return ()

    def _fragments(
        self, path: str, levels: Sequence[Path], root: Path, look: _Look
    ) -> list[tuple[Fragment, str | None]]:
        """The `.clangd` fragments that hold for a file, outermost first, each with the database that it names."""
        found: list[tuple[Fragment, str | None]] = []
        for level in reversed(levels):
            file = level / CLANGD
            text = self._text(file, look)
            if text is None:
                continue
            fragments, complaints = read_clangd(text)
            look.notes += [f"{_shown(str(file), root)}: {sentence}" for sentence in complaints]
            relative = PurePath(path).relative_to(level).as_posix()
            for fragment in fragments:
                holds = applies(fragment, relative)
                if holds is None:
                    look.notes.append(
                        f"{_shown(str(file), root)}: a pattern of it cannot be used, so its part is left out"
                    )
                elif holds:
                    place = fragment.database
                    if place is not None and place not in ("None", "Ancestors"):
                        place = absolute(place, str(level))
                    found.append((_here(fragment, str(level)), place))
        return found

    def _presets(self, level: Path, look: _Look) -> tuple[list[Path], tuple[Preset, str] | None]:
        """Databases in the build folders of CMake's presets, and the first preset that says something of its own."""
        if all(self._text(level / name, look) is None for name in PRESETS):
            return [], None
        presets, complaints = read_presets(str(level), lambda file: self._text(Path(file), look))
        look.notes += complaints
        places = [Path(preset.binary_folder) / DATABASE for preset in presets if preset.binary_folder is not None]
        telling = next((preset for preset in presets if preset.architectures or preset.flags), None)
        return places[:MAX_BUILD_FOLDERS], None if telling is None else (telling, str(level / PRESETS[0]))

    def _database(self, path: Path, look: _Look) -> _Loaded | None:
        name = str(path)
        stamp = _stamp(name)
        if stamp is None:
            return None
        known = self._databases.pop(name, None)
        if known is None or known.stamp != stamp:
            if stamp[1] > MAX_DATABASE_BYTES:
                look.notes.append(f"{name} has more than {MAX_DATABASE_BYTES >> 20} MiB, so it is left out")
                return None
            try:
                text = _long_text(path)
            except OSError as error:
                look.notes.append(f"{name} cannot be read ({error.strerror}), so it is left out")
                return None
            known = _loaded(name, stamp, read_database(text, str(path.parent)))
        self._databases[name] = known
        while len(self._databases) > DATABASES_KEPT:
            self._databases.popitem(last=False)
        look.read.add(name)
        look.notes += [f"{name}: {sentence}" for sentence in known.database.complaints]
        return known

    def _text(self, path: Path, look: _Look) -> str | None:
        """The text of a small plain file, None where there is none."""
        name = str(path)
        stamp = _stamp(name)
        if stamp is None or stamp[1] > MAX_TEXT_BYTES:
            look.missing.add(name)
            return None
        look.read.add(name)
        known = self._texts.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            text = decode_bytes(path.read_bytes())
        except OSError:
            return None
        self._texts[name] = stamp, text
        return text


@functools.cache
def shared_finder() -> FlagFinder:
    """The finder of this process: a database is read once, whoever asks."""
    return FlagFinder()


def _long_text(path: Path) -> str:
    """A file in pieces: what is decoded at once keeps all other threads waiting."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return "".join(iter(lambda: file.read(1 << 18), ""))


def _loaded(path: str, stamp: tuple[int, int], database: Database) -> _Loaded:
    by_name: dict[str, list[str]] = {}
    cuda: list[str] = []
    others: list[str] = []
    for file, entries in database.entries.items():
        by_name.setdefault(os.path.basename(file), []).append(file)
        (cuda if any(map(_may_be_cuda, entries)) else others).append(file)
    return _Loaded(path, stamp, database, by_name, tuple(cuda), tuple(others))


def _may_be_cuda(entry: Entry) -> bool:
    # The words of a long database are not taken apart only to count.
    if entry.file.endswith((".cu", ".cuh")):
        return True
    text = entry.command if entry.command is not None else " ".join(entry.given[:64])
    return "nvcc" in text.split(" -", 1)[0] or " -x cu" in text or "--cuda-gpu-arch" in text or "--offload-arch" in text


def _preferred(entries: Sequence[Entry]) -> Entry:
    """Of several commands of one file the first that compiles CUDA."""
    return next((entry for entry in entries if _may_be_cuda(entry)), entries[0])


def _levels(path: str, root: Path) -> tuple[Path, ...]:
    """The folders that are searched, innermost first. One that anybody may put files into, as `/tmp`, is passed over."""
    found = []
    for folder in islice(Path(path).parents, MAX_LEVELS):
        if folder == Path(folder.anchor) and folder != root:
            break
        try:
            mode = folder.stat().st_mode
        except OSError:
            continue
        if not (mode & stat.S_ISVTX and mode & stat.S_IWOTH):
            found.append(folder)
    return tuple(found)


def _named(place: str) -> Sequence[Path]:
    """A database that was named by its path or its folder."""
    path = Path(os.path.expanduser(place))
    return [path] if path.suffix == ".json" else [path / DATABASE, *_in_build_folders(path)]


def _in_build_folders(level: Path) -> Iterator[Path]:
    """Where the build folders of a folder may have a database: in them, or in one of theirs (`out/build/x64-debug`)."""
    waiting = [(folder, 0) for folder in _subfolders(level) if BUILD_FOLDER.fullmatch(folder.name)]
    count = 0
    while waiting and count < MAX_BUILD_FOLDERS:
        folder, depth = waiting.pop(0)
        count += 1
        yield folder / DATABASE
        if depth < 2 and not any((folder / mark).exists() for mark in (DATABASE, "CMakeCache.txt")):
            waiting += [(each, depth + 1) for each in _subfolders(folder)]


def _subfolders(folder: Path) -> Sequence[Path]:
    try:
        with os.scandir(folder) as items:
            names = sorted(item.name for item in islice(items, 4096) if item.is_dir())
    except OSError:
        return ()
    return [folder / name for name in names if not name.startswith(".") or name == ".vscode"][:MAX_BUILD_FOLDERS]


def _source_files(folder: Path) -> Sequence[Path]:
    try:
        with os.scandir(folder) as items:
            return sorted(Path(item.path) for item in islice(items, 4096) if item.name.endswith(SOURCES))
    except OSError:
        return ()


def _newest_first(files: Iterable[Path], look: _Look) -> Sequence[Path]:
    found: dict[Path, int] = {}
    for file in files:
        stamp = _stamp(str(file))
        if stamp is None:
            look.missing.add(str(file))
        else:
            found[file] = stamp[0]
    return sorted(found, key=lambda file: -found[file])


def _stamp(path: str) -> tuple[int, int] | None:
    """When a plain file was changed, and its bytes."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _here(fragment: Fragment, folder: str) -> Fragment:
    """A fragment whose added include folders are relative to the folder of its `.clangd`, as clangd reads them."""
    words = []
    for word in fragment.add:
        for short in ("-I", "-isystem", "-iquote"):
            value = word[len(short) :]
            if word.startswith(short) and value and not os.path.isabs(value.strip("= ")):
                word = f"{short}{absolute(value.strip('= '), folder)}"
                break
        words.append(word)
    return evolve(fragment, add=tuple(words))


def _place(path: str, root: Path, kind: Kind) -> Kind:
    """What a folder or header outside of the workspace is: a stranger's database must not open up the user's own files.

    Taken are folders of the system's and Python's packages, and those with `include` in their path; never those that
    hold settings, keys or devices.
    """
    real = os.path.realpath(path)
    if kind is Kind.FOLDER and (real == "/usr/include" or os.path.isfile(os.path.join(real, "cuda_runtime.h"))):
        return Kind.TOOLKIT
    if _below(real, os.path.realpath(root)):
        # Without version control the workspace is the parent folder, which may be the user's own.
        inside = PurePath(real).relative_to(os.path.realpath(root)).parts
        return kind if _SECRET.isdisjoint(inside) else Kind.OUTSIDE
    parts = PurePath(real).parts
    if any(_below(real, place) for place in _NEVER) or not _SECRET.isdisjoint(parts):
        return Kind.OUTSIDE
    if any(_below(real, place) and real != place for place in _SYSTEM):
        return kind
    folders = parts if kind is Kind.FOLDER else parts[:-1]
    return kind if not _INCLUDE_FOLDERS.isdisjoint(folders) else Kind.OUTSIDE


def _libraries(flags: Iterable[Flag], root: Path) -> frozenset[str]:
    real_root = os.path.realpath(root)
    return frozenset(folder for folder in folders_of(flags) if not _below(os.path.realpath(folder), real_root))


def _below(path: str, folder: str) -> bool:
    return PurePath(path).is_relative_to(folder)


def _shown(path: str, root: Path) -> str:
    """A path as a message names it."""
    return PurePath(path).relative_to(root).as_posix() if _below(path, str(root)) else path
