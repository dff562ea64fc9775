"""The `.vsix` in a real VS Code, installed as a user installs it."""

import zipfile
from pathlib import Path

import pytest

from dice_lsp import __version__
from tests.vscode import install
from tests.vscode.editor import PROGRAM, ROOT, run_script, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def vsix() -> Path:
    return install.package()


def test_it_holds_what_runs_and_nothing_of_the_tests(vsix: Path) -> None:
    names = zipfile.ZipFile(vsix).namelist()
    assert "extension/dist/extension.js" in names and "extension/package.json" in names
    assert not [name for name in names if "test" in name or "node_modules" in name or name.endswith(".ts")]


def test_a_body_is_filled_in_a_workspace_that_nobody_prepared(vsix: Path, tmp_path: Path) -> None:
    source = ROOT / "tests/data/compile/vector_add.cu"
    file = workspace(tmp_path, {"vectorAdd.cu": source})["vectorAdd.cu"]
    text = source.read_text()
    before, after = "__global__ void addVectors", "\n}\n\nint main"
    steps = run_script(
        tmp_path,
        "unprepared",
        open=[str(file)],
        installed=vsix,
        cold=True,
        # The server is found by itself, as it is for who has it on PATH.
        settings={"dice.server.path": None},
        environment={"PATH": f"{PROGRAM.parent}:/usr/local/bin:/usr/bin:/bin"},
        line=text[: text.index(before)].count("\n") + 3,
    ).steps
    assert steps["extension"]["path"].startswith(str(tmp_path))
    assert steps["extension"]["version"] == __version__
    assert steps["rows"]
    filled = file.read_text()
    head = text[: text.index("{", text.index(before)) + 1]
    assert filled != text
    assert filled.startswith(head) and filled.endswith(text[text.index(after) :])
    body = filled[len(head) : filled.index(after)]
    assert "blockIdx.x" in body and "c[" in body


def test_an_untrusted_workspace_starts_nothing_and_says_why(vsix: Path, tmp_path: Path) -> None:
    file = workspace(tmp_path, {"saxpy.cu": ROOT / "tests/data/saxpy.cu"})["saxpy.cu"]
    trust = {"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "never"}
    steps = run_script(tmp_path, "untrusted", open=[str(file)], installed=vsix, settings=trust).steps
    assert steps["trusted"] is False and steps["active"] is False
    assert steps["children"] == []
    assert "compiles and runs the kernels of the workspace" in steps["reason"]
