"""A session in a real Neovim 0.11.4, with the real server, checkpoint and compilers."""

import shutil
from pathlib import Path

import pytest

from tests.nvim.latency import measure_nvim
from tests.nvim.neovim import ROOT, run_script

SAXPY = ROOT / "tests/data/saxpy.cu"
EXTENSION = ROOT / "tests/data/inline_extension.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_select_fill_hint_accept_undo_stale_redo(tmp_path: Path) -> None:
    file = tmp_path / "saxpy.cu"
    shutil.copy(SAXPY, file)
    seen = run_script(ROOT / "tests/nvim/session.lua", tmp_path, DICE_TEST_FILE=str(file))
    steps = {item["name"]: item["value"] for item in seen["steps"]}
    assert steps["filetype"] == "cuda" and steps["encoding"] == "utf-8"
    assert "regs" in steps["checked"] and "verified" in steps["checked"]
    assert steps["filled"].startswith("A ") and len(steps["filled"]) <= 40
    assert steps["candidate events"] >= 1
    assert 1 <= len(steps["rows"]) <= 4 and steps["rows"][0].startswith("A  ")
    assert steps["tabs"] == 2 and steps["diff windows"] == 2 and "[a] apply" in steps["keys"]
    assert steps["winbar"].strip() == steps["rows"][0]
    assert steps["tabs after"] == 1 and steps["diff after"] is False
    assert steps["diff left"] is False and steps["selected"] == ["a * x[i] + y[i]"]
    original = SAXPY.read_text()
    head, tail = original[: original.index("    int i = blockIdx")], original[original.index("\n}\n\nint main") :]
    assert steps["applied"].startswith(head) and steps["applied"].endswith(tail.rstrip("\n"))
    assert steps["stale"].startswith("stale: ")
    assert steps["diagnostic"]["source"] == "dice" and steps["diagnostic"]["line"] == steps["diagnostic"]["expected"]
    assert "nonsense" in steps["diagnostic"]["message"]
    assert "launch" in steps["completion"] and any("saxpy_cpu" in label for label in steps["completion"])
    assert steps["directive"].startswith("//dice: n = ") and steps["asked"] == "Run and record: "
    assert any(line.startswith("DICE: filling saxpy") for line in seen["statusline"])
    assert "Neovim 0.11" in steps["health"] and "ERROR" not in steps["health"].split("this session")[0]
    assert "positions in utf-8" in steps["health"]
    assert seen["progress"].count("begin") == seen["progress"].count("end")
    assert file.read_text() != "", "the file is still there"


@pytest.mark.timeout(600)
def test_a_python_file_with_kernels_is_attached_and_no_other(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("first.py", "second.py"):
        shutil.copy(EXTENSION, tmp_path / name)
    (tmp_path / "plain.py").write_text("print('hello')\n")
    seen = run_script(
        ROOT / "tests/nvim/python.lua",
        tmp_path,
        DICE_TEST_FILE=str(tmp_path / "first.py"),
        DICE_TEST_SECOND=str(tmp_path / "second.py"),
        DICE_TEST_PLAIN=str(tmp_path / "plain.py"),
    )
    steps = {item["name"]: item["value"] for item in seen["steps"]}
    assert steps["filetype"] == steps["filetype of the other"] == "python"
    assert "verified" in steps["hint"] and steps["root"] == str(tmp_path)
    assert steps["attached to the other"] == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_measures_each_run() -> None:
    times = measure_nvim(runs=2)
    assert set(times) == {"key press to menu", "accept to text", "save to first hint"}
    assert all(len(values) == 2 and all(value > 0 for value in values) for values in times.values()), times
