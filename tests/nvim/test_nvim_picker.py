"""`:Dice`, its maps and its list of candidates in a real Neovim."""

import re
import shutil
from pathlib import Path

import pytest

from tests.nvim.neovim import ROOT, run_script

PLUGIN = ROOT / "editors/nvim"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_command_maps_and_a_list_that_grows(tmp_path: Path) -> None:
    file = tmp_path / "saxpy.cu"
    shutil.copy(ROOT / "tests/data/saxpy.cu", file)
    shutil.copytree(PLUGIN / "doc", tmp_path / "doc")
    seen = run_script(
        ROOT / "tests/nvim/picker.lua",
        tmp_path,
        DICE_TEST_FILE=str(file),
        DICE_TEST_DOC=str(tmp_path / "doc"),
    )
    steps = {item["name"]: item["value"] for item in seen["steps"]}
    for name in ("fill", "body", "candidates", "check", "cancel", "accept-baseline", "history", "status", "restart"):
        assert name in steps["subcommands"]
    assert steps["completed"] == ["accept-baseline"] and steps["kernels"] == ["saxpy"]
    assert not steps["nothing after that"] and all(steps["maps"])
    assert any("there is no :Dice nonsense" in notice for notice in seen["notices"])
    assert any(':Dice cancel takes no "everything"' in notice for notice in seen["notices"])
    assert len(steps["menu"]) == len(steps["subcommands"]) and steps["menu"][0].startswith("fill  ")
    assert "being judged" in steps["bar while it runs"] and "[c] stop" in steps["bar while it runs"]
    assert "being judged" not in steps["bar at the end"] and "[a] apply" in steps["bar at the end"]
    assert steps["grown"] and steps["no second list"] == 2 and steps["best is shown"] == 1
    assert steps["texts"] == steps["rows"] >= 2, "each candidate is another text"
    assert steps["at the last"] == steps["and back"] == steps["rows"] and steps["around"] == 1
    assert steps["closed by Escape"] and steps["the text is as it was"] and steps["no buffer is left"] == 0
    assert steps["taken"] and steps["undone"] and steps["the best is taken"]
    assert steps["said why"] and steps["opened by the action"]
    assert steps["selected"].split() == "if (i < n) z[i] = a * x[i] + y[i];".split()
    assert steps["no list"] and steps["nothing to say here"] == ""
    assert steps["help"].startswith("dice_lsp.txt")
    assert "Not applied" not in seen["messages"] and "Error" not in seen["messages"], seen["messages"]


def test_the_help_file_names_every_subcommand_map_and_option() -> None:
    text = (PLUGIN / "doc/dice_lsp.txt").read_text()
    command = (PLUGIN / "lua/dice_lsp/command.lua").read_text()
    for name in re.findall(r'^add\("([\w-]+)"', command, re.MULTILINE):
        assert f":Dice {name}" in text, f":Dice {name} is not in the help file"
    plugin = (PLUGIN / "plugin/dice_lsp.lua").read_text()
    table = plugin.split('"fill the selection"')[1].split("}) do")[0]
    maps = re.findall(r'plug\("\w", "([\w-]+)"', plugin) + re.findall(
        r'^  (?:\[")?([\w-]+)(?:"\])? = "', table, re.MULTILINE
    )
    assert len(maps) == 11, maps
    for name in maps:
        assert f"<Plug>(dice-{name})" in text, f"<Plug>(dice-{name}) is not in the help file"
    options = (PLUGIN / "lua/dice_lsp/init.lua").read_text().split("M.options = {")[1].split("\n}")[0]
    for name in re.findall(r"^  (\w+) = ", options, re.MULTILINE):
        assert f"{name} = " in text, f"the option {name} is not in the help file"
    assert all(len(line) <= 78 for line in text.splitlines()), "longer than a help window is wide"
