"""Cancelling, crashes and restarts in a real VS Code: each request is answered, and no process stays behind."""

from pathlib import Path

import pytest

from tests.vscode.editor import ROOT, run_suites, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_nothing_hangs_and_nothing_stays(tmp_path: Path) -> None:
    workspace(tmp_path, {"saxpy.cu": ROOT / "tests/data/saxpy.cu"})
    seen = run_suites(tmp_path, ["processes"], settings={"dice.candidates": 8}, deadline_s=420)
    assert len(seen.tests) == 5
    assert not seen.orphans
