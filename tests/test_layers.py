"""The rooms import only downward, and each foreign package has one room: read from the source, nothing is imported."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "dice_lsp"
FLOORS: tuple[set[str], ...] = (
    {"records", "config"},
    {"source", "process", "lease"},
    {"capture"},
    {"diffusion", "worker"},
    {"pipeline"},
    {"jobs"},
    {"server", "training"},
    {"__main__"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
HOMES = {
    "torch": {"diffusion", "training"},
    "triton": {"diffusion"},
    "transformers": {"diffusion", "training"},
    "safetensors": {"diffusion", "training"},
    "pygls": {"server"},
    "lsprotocol": {"server"},
    "cuda": {"worker"},
    "pycuda": {"worker"},
    "pynvml": {"worker"},
    "tree_sitter": {"source"},
    "tree_sitter_cuda": {"source"},
    "tree_sitter_python": {"source"},
    "subprocess": {"process"},
    "multiprocessing": {"process", "training"},
    "concurrent.futures.process": {"process", "training"},
    "pty": set[str](),
}
STARTERS = {
    "fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp", "execl", "execle", "execlp", "execlpe", "execv",
    "execve", "execvp", "execvpe", "spawnl", "spawnle", "spawnlp", "spawnv", "spawnve", "spawnvp", "startfile",
}  # fmt: skip
ASYNC_STARTERS = {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"}
HEAVY = {"torch", "numpy", "transformers", "safetensors", "cuda", "pycuda", "pynvml"}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> list[tuple[str, int]]:
    """Dotted names of everything a file imports, functions' own imports included, with the line."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "", node.lineno))
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def faults(path: Path, text: str) -> list[str]:
    """One line for each broken rule."""
    tree = ast.parse(text)
    room = room_of(path)
    broken: list[str] = []
    relative = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    broken += [f"line {line}: a relative import" for line in relative]
    for name, line in imports_of(tree):
        parts = name.split(".")
        if parts[0] == "dice_lsp" and len(parts) > 1 and room != "__init__" and parts[1] in FLOOR and room in FLOOR:
            if parts[1] != room and FLOOR[parts[1]] >= FLOOR[room]:
                broken.append(f"line {line}: {room} imports {parts[1]}, which is not below it")
        for package, homes in HOMES.items():
            if (name == package or name.startswith(package + ".")) and room not in homes:
                broken.append(f"line {line}: {package} is imported outside of {sorted(homes)}")
        if path.name == "client.py" and parts[0] in HEAVY:
            broken.append(f"line {line}: a client imports {parts[0]}")
    if room != "process":
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if (owner == "os" and node.attr in STARTERS) or node.attr in ASYNC_STARTERS:
                    broken.append(f"line {node.lineno}: {node.attr} starts a process outside of process.py")
            elif isinstance(node, ast.ImportFrom) and node.module == "os":
                broken += [f"line {node.lineno}: os.{a.name}" for a in node.names if a.name in STARTERS]
    return list(dict.fromkeys(broken))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_keeps_the_rules(path: Path) -> None:
    assert faults(path, path.read_text(encoding="utf-8")) == []


def test_every_room_has_a_floor() -> None:
    helpers = {"__init__"}
    # Leaves of the command line: only __main__ and the floors that name them may use them, and they use what is below.
    unplaced = {room_of(path) for path in FILES} - FLOOR.keys() - helpers
    imports = [(path, name) for path in FILES for name, _ in imports_of(ast.parse(path.read_text("utf-8")))]
    for room in sorted(unplaced):
        users = {room_of(path) for path, name in imports if f"{name}.".startswith(f"dice_lsp.{room}.")}
        used = {name.split(".")[1] for path, name in imports if room_of(path) == room and name.startswith("dice_lsp.")}
        lowest_user = min((FLOOR[user] for user in users - {room} if user in FLOOR), default=len(FLOORS))
        highest_used = max((FLOOR[other] for other in used - {room} if other in FLOOR), default=-1)
        assert highest_used < lowest_user, f"{room} uses floor {highest_used} and is used by floor {lowest_user}"


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("records.py", "import dice_lsp.source.kernels"),
        ("source/a.py", "from dice_lsp.process import Child"),
        ("worker/a.py", "from dice_lsp import pipeline"),
        ("server/a.py", "def f():\n    import torch"),
        ("pipeline.py", "import pygls"),
        ("diffusion/a.py", "from cuda.bindings import nvrtc"),
        ("jobs.py", "import subprocess"),
        ("worker/a.py", "import os\nos.fork()"),
        ("worker/a.py", "from os import execv"),
        ("server/a.py", "import asyncio\nasyncio.create_subprocess_exec('x')"),
        ("diffusion/client.py", "import torch"),
        ("worker/client.py", "import numpy as np"),
        ("source/a.py", "from . import b"),
        ("server/a.py", "import multiprocessing.pool"),
    ],
)
def test_the_test_itself_sees_a_broken_rule(where: str, text: str) -> None:
    assert faults(ROOT / where, text)
