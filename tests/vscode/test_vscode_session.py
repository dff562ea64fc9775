"""Sessions in a real VS Code 1.100.3, with the real server, checkpoint and compilers; what happens is in the suites."""

from pathlib import Path

import pytest

from tests.vscode.editor import ROOT, run_suites, workspace

SAXPY = ROOT / "tests/data/saxpy.cu"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_hint_fill_list_diff_accept_undo(tmp_path: Path) -> None:
    workspace(tmp_path, {"saxpy.cu": SAXPY})
    seen = run_suites(tmp_path, ["session"])
    assert len(seen.tests) == 5 and not seen.orphans


def test_ghost_text_and_preview(tmp_path: Path) -> None:
    text = SAXPY.read_text()
    start, end = text.index("    int i = blockIdx"), text.index("}\n\nint main")
    workspace(tmp_path, {"saxpy.cu": SAXPY, "blank.cu": text[:start] + "    \n" + text[end:]})
    assert len(run_suites(tmp_path, ["ghost"]).tests) == 2
