"""Where checkpoints are: the shipped one, folders, and those pulled from the Hugging Face hub; and the user's default.

Nothing but `pull` uses the network, and only when the user runs it.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
from attrs import frozen

from dice_lsp.diffusion.checkpoint import CheckpointError, first_line, network_config, read

SHIPPED = "tiny"
HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
WANTED_FILES = re.compile(
    r"^(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab"
    r"|[\w.-]*\.safetensors\.index)\.json$|^[\w.-]+\.safetensors$|^merges\.txt$|^chat_template\.jinja$|^(README|LICENSE)[\w.-]*$"
)


@frozen
class CheckpointEntry:
    """One line of `dice-lsp model list`."""

    name: str
    path: Path
    size_bytes: int
    parameters: str
    """`13.4M`, or `?` when `problem` is set."""
    layout: str
    """`psm` or `dice`; empty when `problem` is set."""
    licence: str
    default: bool
    problem: str | None = None


@frozen
class RemoteFile:
    """A file of a repository on the hub."""

    name: str
    size_bytes: int
    sha256: str | None
    """Known for the large ones."""


@frozen
class PullPlan:
    """What `pull` is about to do, shown before a byte is fetched."""

    repo_id: str
    revision: str
    licence: str
    files: tuple[RemoteFile, ...]
    target: Path

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def description(self) -> str:
        """For the user to agree to."""
        return (
            f"{self.repo_id} at {self.revision[:12]}: {_spelled_bytes(self.size_bytes)} in {len(self.files)} files, "
            f"licence: {self.licence}\ninto {self.target}"
        )


def shipped_path() -> Path:
    return Path(__file__).resolve().parent.parent / "checkpoints" / SHIPPED


def pulled_dir() -> Path:
    """Where `pull` puts checkpoints, one folder each: `owner--name`."""
    return platformdirs.user_data_path("dice-lsp") / "checkpoints"


def resolve(name: str) -> Path:
    """The folder of a checkpoint: `tiny`, a folder, a pulled name, with or without its owner. Raises `CheckpointError`."""
    if name == SHIPPED:
        if not (shipped_path() / "config.json").is_file():
            raise CheckpointError("the shipped checkpoint is missing from this installation: install dice-lsp again")
        return shipped_path()
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.resolve()
    pulled = _pulled()
    if name in pulled:
        return pulled[name]
    tails = [path for full, path in pulled.items() if full.rpartition("/")[2] == name]
    if len(tails) == 1:
        return tails[0]
    if len(tails) > 1:
        raise CheckpointError(f"several pulled checkpoints are named {name}: say it with its owner")
    if HUB_ID.match(name):
        raise CheckpointError(f"{name} is not on this machine: run `dice-lsp model pull {name}`")
    raise CheckpointError(f"there is no checkpoint {name!r}: `dice-lsp model list` shows what there is")


def list_checkpoints() -> tuple[CheckpointEntry, ...]:
    """The shipped checkpoint and all pulled ones; the default of `use` is marked. A broken one carries its `problem`."""
    default = user_default_model() or SHIPPED
    found = {SHIPPED: shipped_path(), **_pulled()}
    if default not in found and Path(default).expanduser().is_dir():
        found[default] = Path(default).expanduser().resolve()
    entries = []
    for name, path in found.items():
        layout, parameters, problem = "", "?", None
        try:
            info = read(path, name)
            layout, parameters = info.layout, _spelled_count(network_config(info.raw, name).parameters)
        except CheckpointError as error:
            problem = str(error)
        entries.append(
            CheckpointEntry(
                name=name,
                path=path,
                size_bytes=sum(file.stat().st_size for file in path.glob("*.safetensors")),
                parameters=parameters,
                layout=layout,
                licence=_card_licence(path) or ("MIT" if name == SHIPPED else "not stated"),
                default=name == default or name.rpartition("/")[2] == default,
                problem=problem,
            )
        )
    return tuple(entries)


def use(name: str) -> Path:
    """Make a checkpoint the default in the user's config file. Raises `CheckpointError` if it cannot be used."""
    path = resolve(name)
    read(path, name)
    chosen = str(path) if name != SHIPPED and Path(name).expanduser().is_dir() else name
    file = user_config_path()
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}.new")
    fresh.write_text(json.dumps({**_user_config(), "model": chosen}, indent=2) + "\n", encoding="utf-8")
    fresh.replace(file)
    return path


def user_config_path() -> Path:
    """The user's own settings file, written by `use`."""
    return platformdirs.user_config_path("dice-lsp") / "config.json"


def user_default_model() -> str | None:
    """What `use` chose, if anything."""
    model = _user_config().get("model")
    return model if isinstance(model, str) and model else None


def _user_config() -> dict[str, Any]:
    try:
        values = json.loads(user_config_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def pull(
    repo_id: str,
    confirm: Callable[[str], bool],
    progress: Callable[[int, int], None] | None = None,
    *,
    endpoint: str | None = None,
) -> Path | None:
    """Fetch a checkpoint from the Hugging Face hub; an interrupted pull goes on where it stopped.

    `confirm` is shown a description with size and licence first; None is returned when it says no. `progress` gets
    bytes done and in all, at most five times a second, from another thread; without one, a bar is drawn on stderr. Only
    safetensors, JSON, tokenizer files and the card are fetched.
    Raises `CheckpointError`.
    """
    if not HUB_ID.match(repo_id):
        raise CheckpointError(f"{repo_id!r} is no Hugging Face id: write OWNER/NAME, e.g. DeadlyKitt3n/DICE-4B")
    import huggingface_hub

    api = huggingface_hub.HfApi(endpoint=endpoint)
    try:
        info = api.model_info(repo_id, files_metadata=True)
    except Exception as error:  # the hub's client raises many kinds: all mean that nothing can be fetched
        raise CheckpointError(f"{repo_id} cannot be looked up: {first_line(error)}") from error
    plan = _plan(repo_id, info)
    if not confirm(plan.description):
        return None
    plan.target.mkdir(parents=True, exist_ok=True)
    if progress is None:
        with _bar(plan) as bar:
            _fetch(plan, bar, endpoint)
    else:
        _fetch(plan, progress, endpoint)
    read(plan.target, repo_id)
    return plan.target


def _fetch(plan: PullPlan, progress: Callable[[int, int], None], endpoint: str | None) -> None:
    import huggingface_hub

    # The client's own bars, one a file, would be drawn over ours.
    huggingface_hub.utils.disable_progress_bars()
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(plan, done, progress), name="pull progress", daemon=True)
    watcher.start()
    try:
        marker = plan.target / ".revision"
        if not marker.is_file() or marker.read_text(encoding="utf-8") != plan.revision:
            for old in plan.target.iterdir():
                if old.is_file():
                    old.unlink()
            marker.write_text(plan.revision, encoding="utf-8")
        # The config goes last: a folder without one is not listed, so half a checkpoint never looks like a whole one.
        for file in sorted(plan.files, key=lambda file: file.name == "config.json"):
            _fetch_file(plan, file, endpoint)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{plan.repo_id} could not be fetched: {first_line(error)}; the same command goes on where it stopped"
        ) from error
    finally:
        done.set()
        watcher.join()
    progress(plan.size_bytes, plan.size_bytes)


def _fetch_file(plan: PullPlan, file: RemoteFile, endpoint: str | None) -> None:
    """One file, into a `.part` that a later pull continues: the hub's client itself begins a file anew after a failure."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    final, part = plan.target / file.name, plan.target / f"{file.name}.part"
    if final.is_file() and final.stat().st_size == file.size_bytes:
        return
    have = part.stat().st_size if part.is_file() else 0
    if have > file.size_bytes:
        have = 0
    if have < file.size_bytes or file.size_bytes == 0:
        url = hf_hub_url(plan.repo_id, file.name, revision=plan.revision, endpoint=endpoint)
        with open(part, "ab" if have else "wb") as stream:
            http_get(url, stream, resume_size=have, headers=build_hf_headers(), expected_size=file.size_bytes or None)
    if file.sha256 is not None:
        with open(part, "rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != file.sha256:
            part.unlink()
            raise CheckpointError(f"{file.name} of {plan.repo_id} arrived damaged and was deleted: pull it again")
    part.replace(final)


@contextlib.contextmanager
def _bar(plan: PullPlan) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(plan.repo_id, total=plan.size_bytes)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plan(repo_id: str, info: Any) -> PullPlan:
    files = tuple(
        RemoteFile(item.rfilename, int(item.size or 0), getattr(getattr(item, "lfs", None), "sha256", None))
        for item in info.siblings or ()
        if WANTED_FILES.match(item.rfilename)
    )
    names = [file.name for file in files]
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"{repo_id} has no config.json with safetensors beside it: nothing of it can be used")
    card = getattr(info, "card_data", None)
    licence = getattr(card, "license", None) or next(
        (tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")), None
    )
    if isinstance(licence, list):
        licence = ", ".join(map(str, licence))
    target = pulled_dir() / repo_id.replace("/", "--")
    return PullPlan(repo_id, str(info.sha or "main"), licence or "not stated", files, target)


def _watch(plan: PullPlan, done: threading.Event, progress: Callable[[int, int], None]) -> None:
    """Report the bytes on disk, partial files included."""
    while not done.wait(0.2):
        have = 0
        for file in plan.files:
            for path in (plan.target / file.name, plan.target / f"{file.name}.part"):
                with contextlib.suppress(OSError):
                    have += path.stat().st_size
        progress(min(have, plan.size_bytes), plan.size_bytes)


def _pulled() -> dict[str, Path]:
    if not pulled_dir().is_dir():
        return {}
    return {
        folder.name.replace("--", "/", 1): folder
        for folder in sorted(pulled_dir().iterdir())
        if (folder / "config.json").is_file()
    }


def _card_licence(path: Path) -> str | None:
    """`license:` of the front matter of the model card."""
    try:
        with open(path / "README.md", encoding="utf-8", errors="replace") as card:
            head = card.read(8192)
    except OSError:
        return None
    found = re.search(r"^license:\s*(\S+)", head, re.MULTILINE) if head.startswith("---") else None
    return found.group(1) if found else None


def _spelled_bytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _spelled_count(count: int) -> str:
    return f"{count / 1e9:.2f}B" if count >= 1e9 else f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.0f}K"
