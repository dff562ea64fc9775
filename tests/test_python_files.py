"""Kernels in the strings of a Python program: checked and filled where they stand, the program around them untouched."""

import ast
import json
import shutil
from pathlib import Path

import pytest

from dice_lsp.__main__ import main

HOST = ("--backend", "host")
PROGRAM = Path(__file__).parent / "data" / "program.py"
EXTENSION = Path(__file__).parent / "data" / "inline_extension.py"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return Path(shutil.copy(PROGRAM, tmp_path))


def test_check_judges_each_string_as_a_translation_unit(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(program), "--json", *HOST]) == 0
    first, second = json.loads(capsys.readouterr().out)["kernels"]
    assert [first["line"], second["line"]] == [7, 14]
    assert first["build"]["kind"] == second["build"]["kind"] == "compiled"
    assert first["verdict"]["kind"] == "verified"


def test_infill_writes_into_the_string_and_nowhere_else(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = program.read_text()
    assert main(["infill", str(program), "--lines", "8:9", "--apply", "--json", *HOST]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["applied"] == "A"
    after = program.read_text()
    assert after.splitlines()[:7] == before.splitlines()[:7]
    assert after.splitlines()[-5:] == before.splitlines()[-5:]
    assert "z[" in after and after != before
    ast.parse(after)


def test_a_program_without_kernels_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plain.py"
    path.write_text("print('hello')\n")
    assert main(["infill", str(path), "--kernel", "saxpy", *HOST]) == 2
    assert "in a plain string" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("", "", "verified"),
        ("x * self.scale + bias", "x * self.scale - bias", "wrong"),
        ("[0.5]", "[0.25]", "verified"),
    ],
)
def test_the_model_of_an_inline_extension_is_its_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, verdict: str
) -> None:
    path = tmp_path / "extension.py"
    path.write_text(EXTENSION.read_text().replace(old, new) if old else EXTENSION.read_text())
    assert main(["check", str(path), "--json", *HOST]) == (0 if verdict == "verified" else 1)
    (report,) = json.loads(capsys.readouterr().out)["kernels"]
    assert report["verdict"]["kind"] == verdict
    spec = report["spec"]
    assert spec["reference"]["via"] == "torch" and "torch.softmax(x * " in spec["reference"]["text"]
    assert [(dim["name"], dim["values"][0]) for dim in spec["dims"]] == [("rows", 48), ("columns", 96)]
    assert spec["scalars"]["scale"] == new[1:-1] if new == "[0.25]" else spec["scalars"]["scale"] == "0.5"
