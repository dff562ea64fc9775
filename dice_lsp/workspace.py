"""What belongs to one workspace: the folder that holds a file, its history, and the few settings that it may decide.

A workspace may come from a stranger. Its settings say what is checked and shown; they never name a program, a flag, a
model or a file, because opening a folder must not choose what is executed.
"""

import os
import stat
import tomllib
from collections.abc import Iterable
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
