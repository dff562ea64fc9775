"""The loop in a real Emacs with Eglot and with lsp-mode, where Debian's packages of them are installed."""

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.stdio.raw import ROOT, SERVER

SAXPY = ROOT / "tests/data/saxpy.cu"
INSTALL = "apt-get install --no-install-recommends emacs-nox elpa-eglot elpa-lsp-mode (48 MB)"


@cache
def missing(package: str) -> str | None:
    """Why a session with this package of Emacs cannot run here."""
    if shutil.which("emacs") is None:
        return f"Emacs is not installed: {INSTALL}"
    probe = [
        "emacs",
        "--batch",
        "-q",
        "--eval",
        f"(progn (require 'package) (package-initialize) (require '{package}))",
    ]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    return None if done.returncode == 0 else f"Emacs has no {package}: {INSTALL}"


@pytest.fixture(scope="module", params=["eglot", "lsp-mode"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What happened in one session."""
    client: str = request.param
    if (reason := missing(client)) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp(client)
    file, out = folder / "saxpy.cu", folder / "seen.json"
    shutil.copy(SAXPY, file)
    done = subprocess.run(
        ["emacs", "--batch", "-q", "-l", str(ROOT / "tests/clients/session.el")],
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(folder),
            # What our compilers keep is shared with the other tests.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            "PYTHONPATH": str(ROOT),
            "DICE_TEST_CLIENT": client,
            "DICE_TEST_CMD": json.dumps(SERVER),
            "DICE_TEST_FILE": str(file),
            "DICE_TEST_OUT": str(out),
        },
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert out.exists(), done.stderr[-4000:]
    result: dict[str, Any] = json.loads(out.read_text())
    assert result["failure"] is None, f"{result['failure']}\n{result['messages']}\n{done.stderr[-2000:]}"
    return result | {"client": client}


pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_select_fill_choose_undo(seen: dict[str, Any]) -> None:
    assert "registers" in seen["hover"] and "saxpy_cpu" in seen["hover"]
    assert seen["menus"][0][:2] == ["DICE: fill selection", "DICE: fill kernel body"]
    assert any(title.startswith("DICE: apply A  verified") for title in seen["menus"][-1])
    original = SAXPY.read_text()
    head, tail = original[: original.index("    int i = blockIdx")], original[original.index("\n}\n\nint main") :]
    assert seen["applied"] != original and seen["applied"].startswith(head) and seen["applied"].endswith(tail)
    assert seen["verified"] is not None
    assert seen["undone"] == original, "one undo takes the candidate back"


def test_an_error_stands_at_its_line(seen: dict[str, Any]) -> None:
    line, text = seen["diagnostic"]
    assert "nonsense" in text and line == seen["line"]


def test_nothing_is_said_of_an_edit_that_was_done(seen: dict[str, Any]) -> None:
    """Eglot tells of the change only after the command that made it was answered."""
    assert seen["said"] == []
