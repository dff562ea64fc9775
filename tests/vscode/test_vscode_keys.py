"""Keys pressed in a real VS Code, and what the screen then shows."""

from pathlib import Path

import pytest

from tests.vscode.editor import ROOT, run_script, workspace

SAXPY = ROOT / "tests/data/saxpy.cu"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_cancel_menu_progress_list_escape_enter_undo(tmp_path: Path) -> None:
    # So far down that the diff has to scroll.
    original = "// One line of the licence\n" * 40 + SAXPY.read_text()
    first = original[: original.index("    int i = blockIdx")].count("\n") + 1
    file = workspace(tmp_path, {"saxpy.cu": original})["saxpy.cu"]
    # As many that a fill is not over before it is stopped.
    settings = {"dice.candidates": 8}
    steps = run_script(tmp_path, "fill", open=[str(file)], settings=settings, first=first, last=first + 2).steps
    assert steps["unchanged by the cancel"] is True
    assert steps["status after the cancel"]["server"]["fills"] == 0
    assert not [text for text in steps["toasts after the cancel"] if "filling" in text]
    assert any("DICE: fill selection" in row for row in steps["menu"])
    assert "DICE: filling" in steps["progress"]
    assert steps["rows"][0]["active"] and "verified on host" in steps["rows"][0]["text"]
    assert [row["active"] for row in steps["rows after"]].index(True) == 1
    assert steps["text after Escape"] is True and steps["tabs after Escape"] == ["saxpy.cu"]
    assert [row["text"] for row in steps["again"]] == [row["text"] for row in steps["rows"]]
    assert steps["applied"].startswith(original[: original.index("    int i = blockIdx")])
    assert steps["applied"].endswith(original[original.index("\n}\n\nint main") :])
    assert not steps["notifications left"]
    assert file.read_text() == original, "nothing is written that the user did not save"
