"""What belongs to one workspace: the folder that holds a file, its history, and the few settings that it may decide.

A workspace may come from a stranger. Its settings say what is checked and shown; they never name a program, a flag, a
model or a file, because opening a folder must not choose what is executed.
"""

import os
import stat
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

import attrs
from attrs import frozen
from platformdirs import user_state_path

from dice_lsp.config import Settings, resolve

FOLDER = ".dice"
SETTINGS_FILE = "settings.toml"
SETTINGS = frozenset({
    "check_on_save", "check_on_open", "check_budget_s", "verify", "benchmark", "sanitize", "code_lens", "inlay_hints",
    "history", "auto_baseline", "regression_percent",
})  # fmt: skip
"""The names that a workspace's file may set."""
MAX_SETTINGS_BYTES = 1 << 16
_HEADER_SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".cu")
MAX_WALKED = 20_000
"""Files and folders of a project that are looked at for a header that nobody says the place of."""
WALK_AGE_S = 30.0
_walked: dict[Path, tuple[float, Mapping[str, tuple[str, ...]]]] = {}


@frozen
class WorkspaceFile:
    """Where what is known of a file is kept, and under which name."""

    store: Path
    """The folder of the history: the workspace's `.dice`, or one of the user's own for files outside of any."""
    name: str
    """The path inside of the workspace, with forward slashes; the whole path for a file outside of any."""


def folder_of(path: str, folders: Iterable[str]) -> str | None:
    """The workspace folder that holds a file: the innermost one where they are nested."""
    inside = [folder for folder in folders if PurePath(path).is_relative_to(folder)]
    return max(inside, key=lambda folder: len(PurePath(folder).parts), default=None)


def workspace_root(folder: Path) -> Path:
    """The project that a folder belongs to: the nearest one above it under version control, else the folder's parent.

    Files above it are not read on behalf of an include. The parent counts because `src/` and `include/` stand side by side
    in projects that are no repository; the file system's root never does.
    """
    for candidate in (folder, *folder.parents):
        if candidate == Path(candidate.anchor):
            break
        if any((candidate / mark).exists() for mark in (".git", ".hg", ".svn", "compile_commands.json")):
            return candidate
    return folder.parent if folder.parent != Path(folder.anchor) else folder


def usual_include_dirs(folder: Path, root: Path) -> tuple[Path, ...]:
    """Folders of a project that builds usually name with -I: looked into last, when nothing else has the header."""
    found: list[Path] = []
    for parent in (folder, *folder.parents):
        if not parent.is_relative_to(root):
            break
        found += [parent, *(parent / name for name in ("include", "inc", "common", "Common", "src"))]
    return tuple(path for path in found if path.is_dir())


def nearest_with(root: Path, folder: Path, name: str) -> Path | None:
    """The folder of the project at `root` in which a header's name leads to a file; of several the one nearest to `folder`.

    None where the project has none, or two that are equally near.
    """
    if name.startswith(("/", ".")) or "/../" in name:
        return None
    found = [path for path in _headers_below(root).get(name.rpartition("/")[2], ()) if path.endswith("/" + name)]
    by_nearness: dict[int, list[str]] = {}
    for path in found:
        common = os.path.commonpath([path, folder])
        by_nearness.setdefault(len(Path(common).parts), []).append(path)
    nearest = by_nearness[max(by_nearness)] if by_nearness else []
    return Path(nearest[0][: -len(name) - 1]) if len(nearest) == 1 else None


def _headers_below(root: Path) -> Mapping[str, tuple[str, ...]]:
    """Name -> paths of the headers of a project; looked for again after a while."""
    now = time.monotonic()
    kept = _walked.get(root)
    if kept is not None and now - kept[0] < WALK_AGE_S:
        return kept[1]
    found: dict[str, tuple[str, ...]] = {}
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        seen += len(folders) + len(files)
        for name in files:
            if name.endswith(_HEADER_SUFFIXES):
                found[name] = (*found.get(name, ()), os.path.join(folder, name))
        if seen > MAX_WALKED:
            break
    while len(_walked) >= 8:
        del _walked[next(iter(_walked))]
    _walked[root] = (now, found)
    return found


def workspace_file(path: str, folder: str | None) -> WorkspaceFile:
    """The place of a file's history, given the workspace folder that holds it, if any does."""
    path = os.path.normpath(path)
    if folder is None:
        return WorkspaceFile(user_state_path("dice-lsp") / "outside", PurePath(path).as_posix())
    return WorkspaceFile(Path(folder) / FOLDER, PurePath(path).relative_to(folder).as_posix())


def workspace_settings(folder: str, base: Settings) -> tuple[Settings, tuple[str, ...]]:
    """`base` with what the folder's `.dice/settings.toml` decides, and one sentence for each thing not taken from it.

    Reads a file, so never on a loop.
    """
    path = Path(folder) / FOLDER / SETTINGS_FILE
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return base, (f"{path} is not a plain file, so it is left out",)
        with path.open("rb") as file:
            data = file.read(MAX_SETTINGS_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return base, ()
    except OSError as error:
        return base, (f"{path} cannot be read ({error.strerror}), so it is left out",)
    if len(data) > MAX_SETTINGS_BYTES:
        return base, (f"{path} is longer than {MAX_SETTINGS_BYTES} bytes, so it is left out",)
    try:
        given = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        return base, (f"{path} is not TOML ({error}), so it is left out",)
    allowed = ", ".join(sorted(SETTINGS))
    refused = tuple(
        f"{path}: {name} is not for a workspace to set; it may set {allowed}" for name in given if name not in SETTINGS
    )
    taken, complaints = resolve({name: value for name, value in given.items() if name in SETTINGS}, base)
    only = {name: getattr(taken, name) for name in SETTINGS}
    return attrs.evolve(base, **only), (*refused, *(f"{path}: {sentence}" for sentence in complaints))
