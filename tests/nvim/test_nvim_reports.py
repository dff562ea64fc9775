"""Reports that users filed against other tools, tried on this one in a real Neovim 0.11.4."""

import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.nvim.neovim import ROOT, run_script

SAXPY = ROOT / "tests/data/saxpy.cu"
CHARACTERS = """// 归约 共享内存 ✅
void scale_cpu(int n, const float* x, float* y) {
\tfor (int i = 0; i < n; i++) y[i] = 2.0f * x[i];
}

// ✅ 每块 256
__global__ void scale(int n, const float* x, float* y) {
\t// 每个线程一个元素 🚀
\tint i = blockIdx.x * blockDim.x + threadIdx.x;
\t/* 下标 ✅ */ if (i < n) { y[i] = 2.0f * x[i]; }
}
"""


def steps_of(seen: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item["value"] for item in seen["steps"]}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clangd_and_our_server_in_one_buffer(tmp_path: Path) -> None:
    """neovim/neovim#32248: hints of two servers, lines that come and go, `Invalid 'col': out of range`."""
    file = tmp_path / "two_servers.cu"
    shutil.copy(ROOT / "tests/nvim/two_servers.cu", file)
    (tmp_path / "compile_flags.txt").write_text("-xcuda\n-nocudainc\n-nocudalib\n--cuda-gpu-arch=sm_90\n")
    (tmp_path / ".clang-format").write_text("BasedOnStyle: LLVM\nIndentWidth: 4\n")
    clangd = Path(sys.executable).parent / "clangd"
    assert clangd.exists(), "clangd is not installed: run `make venv`"
    seen = run_script(
        ROOT / "tests/nvim/two_servers.lua", tmp_path, DICE_TEST_FILE=str(file), DICE_TEST_CLANGD=str(clangd)
    )
    steps = steps_of(seen)
    assert {item["client"] for item in steps["hints of clangd"]} == {"clangd"}, "ours are drawn apart from clangd's"
    said = seen["messages"] + seen["stderr"]
    assert "Invalid 'col'" not in said and "Error" not in said, said
    assert steps["the text is as before"] and steps["the hint has moved along"]
    assert "DICE: fill selection" in steps["actions"]["dice_lsp"]
    assert steps["actions"]["clangd"] and not any("DICE" in title for title in steps["actions"]["clangd"])
    assert steps["formatted"].strip() == "int unused = 1;", "clangd has formatted"
    assert steps["nothing was edited after the save"]
    assert "dice_lsp" not in seen["edits"]
    assert "dice" not in steps["sources"], "what is wrong with the C++ is clangd's to say"
    assert "clangd runs too" in steps["health"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_wide_characters_tabs_and_crlf(tmp_path: Path) -> None:
    """neovim/neovim#36529: one character is edited between the offer and its acceptance, beside full-width characters."""
    file = tmp_path / "wide.cu"
    file.write_bytes(CHARACTERS.replace("\n", "\r\n").encode())
    seen = run_script(ROOT / "tests/nvim/characters.lua", tmp_path, DICE_TEST_FILE=str(file))
    steps = steps_of(seen)
    assert steps["fileformat"] == "dos" and steps["encoding"] == "utf-8"
    region = "y[i] = 2.0f * x[i];"
    assert steps["selected"] == region
    line = CHARACTERS.split("\n")[steps["range"]["start"]["line"]].encode()
    assert line[steps["range"]["start"]["character"] : steps["range"]["end"]["character"]].decode() == region
    for edited in ("above", "on its line"):
        before, after = ("before", "after") if edited == "above" else (f"before {edited}", f"after {edited}")
        assert steps[f"applied after an edit {edited}"] is True
        head, _, tail = steps[before].rpartition(region)
        assert steps[after] == head + steps["candidate"] + tail
    assert (
        "// 归约📌 共享内存 ✅\n// 又一行 🚀\n" in steps["after"] and "/* ✅数下标 ✅ */" in steps["after on its line"]
    )
    assert steps["one undo takes it back"] and steps["back again"]
    assert steps["applied after an edit in it"] is False and steps["the text stands"]
    assert any(notice.startswith("Not applied: ") for notice in seen["notices"]) or "Not applied: " in seen["messages"]
    assert steps["last character"] == "🚀"
    assert steps["asked"]["end"]["character"] == len(steps["its line"].encode())
    lines = steps["operated"].replace("\r\n", "\n").split("\n")
    assert [part.strip()[:5] for part in lines] == ["int i", "/* ✅数"]
    assert steps["applied a block"] is True
    written = file.read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n") and b"\r\r" not in written
    assert all(row.startswith("\t") for row in steps["block"] if row.strip() and row != "}"), steps["block"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cancels_kills_and_restarts(tmp_path: Path) -> None:
    """openlawlibrary/pygls#517, ggml-org/llama.vscode#217, TabbyML/tabby#3367: what ends, ends everywhere."""
    files = [tmp_path / "first.cu", tmp_path / "second.cu"]
    for file in files:
        shutil.copy(SAXPY, file)
    (tmp_path / ".git").mkdir()
    seen = run_script(
        ROOT / "tests/nvim/faults.lua",
        tmp_path,
        deadline_s=560.0,
        DICE_TEST_FILE=str(files[0]),
        DICE_TEST_SECOND=str(files[1]),
    )
    steps = steps_of(seen)
    works = {"candidates": 1}
    assert steps["phrase while loading"].startswith("DICE: filling")
    assert steps["cancelled while loading"].get("reason") == "cancelled"
    assert steps["after a cancel while loading"] == works
    assert set(steps["answers"]) <= {"hover", "nothing", "error -32800"}
    assert steps["processes seen"] >= 3, "the server and its two rooms"
    assert steps["the text has its edits"] == "// 20" and steps["the text is whole"]
    assert "SIGKILL" in steps["killed"], steps["killed"]
    assert steps["status after the kill"]["state"] in ("failed", "idle")
    assert "SIGKILL" in steps["status after the kill"]["model"]["reason"]
    assert steps["phrase after the kill"].startswith("DICE: failed: "), steps["phrase after the kill"]
    assert steps["after the model was killed"] == works
    assert "failed" not in steps["phrase after the next fill"]
    assert steps["one server for both"] == 1 and steps["in the second file"] == works
    assert steps["fills of the first file"] >= 1 and steps["fills of the second file"] == [True]
    assert steps["after the server was killed"] == works
    assert any("was ended by signal 9 and is started again" in notice for notice in seen["notices"])
    assert steps["servers after a restart"] == 1 and "verified" in steps["hint after the restart"]
    alive = [line for pid, line in seen["pids"].items() if is_still(int(pid), line)]
    assert not alive, f"these processes outlived Neovim: {alive}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_cannot_start_is_given_up_and_started_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "saxpy.cu"
    shutil.copy(SAXPY, file)
    seen = run_script(ROOT / "tests/nvim/dies.lua", tmp_path, DICE_TEST_FILE=str(file))
    steps = steps_of(seen)
    assert steps["phrase"] == "DICE: stopped, :Dice restart" and steps["tries"] == 3 and steps["is any left"] == 0
    assert steps["lenses"] and all(steps["lenses"])
    assert steps["ghost text"] is False and steps["untouched"], "this Neovim has no ghost text"
    assert steps["after a stop"] == {"clients": 0, "said": 0}
    assert steps["without a server"] and steps["log"] == "lsp.log"


def is_still(pid: int, line: str) -> bool:
    """Whether the process that had this command line still runs."""
    try:
        return psutil.Process(pid).cmdline() == line.split(" ")[:-1]
    except psutil.NoSuchProcess:
        return False
