"""Folders of workers: gone with their owner, even one that had no moment to tidy up."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dice_lsp.worker.scratch import HELD, Scratch, remove_abandoned

OWNER = """
import sys, time
from dice_lsp.worker.scratch import Scratch
scratch = Scratch("test")
(scratch.path / "large").write_bytes(bytes(1000))
print(scratch.path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def owner(root: Path) -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(root)}
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_a_folder_goes_with_its_owner_however_that_ends(root: Path) -> None:
    killed, left = owner(root)
    alive, kept = owner(root)
    try:
        assert left.parent == kept.parent == root and left != kept
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (left / "large").exists()
        assert remove_abandoned(root, young_s=0.0) == 1
        assert not left.exists() and (kept / "large").exists()
    finally:
        for child in (killed, alive):
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def test_closing_removes_it_at_once(root: Path) -> None:
    scratch = Scratch("test")
    (scratch.path / "inner").mkdir()
    assert scratch.path.parent == root and remove_abandoned(root, young_s=0.0) == 0
    scratch.close()
    assert not scratch.path.exists()


def test_what_is_not_certainly_abandoned_stays(root: Path) -> None:
    young, foreign, link = root / "dice-young", root / "dice-foreign", root / "dice-link"
    young.mkdir()
    (young / HELD).touch()
    foreign.mkdir()
    (foreign / "a user's file").touch()
    target = root / "elsewhere"
    target.mkdir()
    (target / HELD).touch()
    os.utime(target / HELD, (time.time() - 3600,) * 2)
    link.symlink_to(target)
    (root / "dice-file").touch()
    assert remove_abandoned(root) == 0
    assert all(path.exists() for path in (young / HELD, foreign / "a user's file", link, target / HELD))
    assert remove_abandoned(root / "nowhere") == 0


def test_the_next_one_removes_what_an_earlier_owner_left(root: Path) -> None:
    killed, left = owner(root)
    killed.kill()
    killed.wait()
    assert killed.stdout is not None
    killed.stdout.close()
    os.utime(left / HELD, (time.time() - 3600,) * 2)
    scratch = Scratch("test")
    assert not left.exists() and scratch.path.exists()
    scratch.close()


def test_a_heap_of_them_goes_piece_by_piece(root: Path) -> None:
    for number in range(5):
        folder = root / f"dice-old-{number}"
        folder.mkdir()
        (folder / HELD).touch()
    assert [remove_abandoned(root, young_s=0.0, most=3) for _ in range(3)] == [3, 2, 0]
