"""What several commands share: usage errors, the settings of a command line, and files read and written as a whole."""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from dice_lsp.config import Settings, resolve
from dice_lsp.records import Document
from dice_lsp.source.embedded import document_of
from dice_lsp.source.positions import decode_bytes
from dice_lsp.workspace import FOLDER, SETTINGS_FILE, workspace_settings


class UsageError(Exception):
    """What the user asked cannot be done; the message is one sentence with the next step."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options of a command that become settings."""
    group = parser.add_argument_group("settings", "the same as in an editor, see `dice-lsp settings`")
    group.add_argument("--model")
    group.add_argument("--backend", metavar="auto|pycuda|cuda-core|host")
    group.add_argument("--device", type=int, metavar="INDEX")
    group.add_argument("--arch", metavar="sm_90")
    group.add_argument("--seed", type=int)
    group.add_argument("--strategy", dest="decode_strategy")
    group.add_argument("--threshold", dest="decode_threshold", type=float)
    group.add_argument("--temperature", dest="decode_temperature", type=float)
    group.add_argument("--block-size", dest="decode_block_size", type=int)
    group.add_argument("--model-device")
    group.add_argument(
        "--flag", dest="compile_flags", action="append", metavar="FLAG", help="for the compiler, e.g. --flag=-DN=4"
    )
    group.add_argument("--no-benchmark", dest="benchmark", action="store_const", const=False)
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting, as JSON")


def settings_of(arguments: argparse.Namespace, base: Settings) -> Settings:
    """The settings of a command line: its options over `base`."""
    names = {field.name for field in attrs.fields(Settings)}
    options = {key: value for key, value in vars(arguments).items() if key in names and value is not None}
    for item in arguments.set:
        name, separator, value = item.partition("=")
        if not separator:
            raise UsageError(f"--set {item} has no value; write --set NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    settings, complaints = resolve(options, base)
    if complaints:
        raise UsageError(complaints[0])
    return settings


def user_settings() -> Settings:
    """The defaults of this user: those of the package, with the checkpoint that `model use` chose."""
    from dice_lsp.diffusion.registry import user_default_model

    chosen = user_default_model()
    return Settings() if chosen is None else attrs.evolve(Settings(), model=chosen)


def settings_for(path: Path, arguments: argparse.Namespace) -> tuple[Settings, tuple[str, ...]]:
    """The settings that hold for a file, and a sentence for each thing that its workspace's settings file got wrong.

    The command line wins over the workspace, which is the nearest folder above with a `.dice/settings.toml`, and that
    over the user.
    """
    base = user_settings()
    complaints: tuple[str, ...] = ()
    for folder in path.resolve().parents:
        if (folder / FOLDER / SETTINGS_FILE).exists():
            base, complaints = workspace_settings(str(folder), base)
            break
    return settings_of(arguments, base), complaints


def read_bytes(path: Path) -> bytes:
    """The bytes of a file that the user named."""
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def read_document(path: Path) -> Document:
    """The text of a source file that the user named; of a Python file, the CUDA in its strings."""
    return document_of(path.resolve().as_uri(), 0, decode_bytes(read_bytes(path)))


def write_whole(path: Path, data: bytes | Callable[[bytes], bytes]) -> None:
    """Write a file at once or not at all, the mode of the one that was there kept.

    `data` may be a function of the bytes that are there now. A pipe or a device is written to, not replaced.
    """
    name = None
    try:
        there = path.read_bytes() if path.is_file() else b""
        written = data if isinstance(data, bytes) else data(there)
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                device.write(written)
            return
        target = path.resolve()
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(written)
        os.chmod(name, mode)
        os.replace(name, target)
    except OSError as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
