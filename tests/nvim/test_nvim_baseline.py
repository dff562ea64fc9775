"""Baselines, regressions and history in a real Neovim, as far as a machine without a GPU can tell."""

import shutil
from pathlib import Path

import pytest

from tests.nvim.neovim import ROOT, run_script


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_accept_regress_go_wrong_undo_and_opt_out(tmp_path: Path) -> None:
    file = tmp_path / "saxpy.cu"
    shutil.copy(ROOT / "tests/data/saxpy.cu", file)
    (tmp_path / ".git").mkdir()
    seen = run_script(ROOT / "tests/nvim/baseline.lua", tmp_path, DICE_TEST_FILE=str(file))
    steps = {item["name"]: item["value"] for item in seen["steps"]}
    assert "verified" in steps["checked"]
    assert "verified" in steps["hungrier"], "it is still right"
    regression = steps["regression"]
    assert "occupancy" in regression["message"] and regression["at_name"] and regression["warning"], regression
    assert "44000 B" in steps["hover of the regression"] and "baseline" in steps["hover of the regression"]
    assert steps["wrong"].startswith("wrong: z[") and steps["wrong is an error"]
    assert "wrong: z[" in steps["wrong says"] and "was verified" in steps["wrong says"]
    assert steps["back at the start"]
    assert any(block in steps["hover"] for block in "▁▂▃▄▅▆▇█"), steps["hover"]
    assert steps["history"][0].startswith("Baseline: ") and "accepted" in steps["history"][0]
    rows = [row for row in steps["history"] if " regs  " in row]
    assert [row.split(" regs  ")[1].split()[0] for row in rows] == ["wrong", "verified", "verified"], "newest first"
    assert (tmp_path / ".dice").is_dir(), "the history lies in the workspace"
    assert "model: " in steps["health"] and "judge: " in steps["health"]
    assert steps["checks after a save that asks for none"] == 0
    assert steps["after a save that asks for no check"].startswith("stale: ")
    assert "verified" in steps["after a check"]
