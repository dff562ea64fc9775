"""`dice-lsp check FILE` and `dice-lsp doctor FILE` with the flags of a project's build."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from dice_lsp.json_output import check_schema
from tests.test_cli_check import run

KERNEL = """\
void shift_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] + SHIFT; }
//dice: n = 1000 | 33; ref shift_cpu
__global__ void shift(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + SHIFT;
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A kernel that needs a macro of a header that only the build includes, for an architecture that is gone."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src/shift.cu").write_text(KERNEL)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/config.h").write_text("#define SHIFT BASE + 1.0f\n")
    arguments = ["/evil/nvcc", "-include", "config.h", "-DBASE=2.0f", "-I/home", "-arch=sm_35", "-c", "../src/shift.cu"]
    entry = {"directory": str(tmp_path / "build"), "file": "../src/shift.cu", "arguments": arguments}
    (tmp_path / "build/compile_commands.json").write_text(json.dumps([entry]))
    return tmp_path


def dice(cwd: Path, *words: str) -> tuple[int, str]:
    done = run(sys.executable, "-m", "dice_lsp", *words, cwd=cwd)
    assert not done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode()


def test_check_uses_them_and_says_whose_they_are(project: Path) -> None:
    code, text = dice(project, "check", "--backend", "host", "--json", "src/shift.cu")
    told = json.loads(text)
    jsonschema.validate(told, check_schema())
    (kernel,) = told["kernels"]
    assert code == 0 and kernel["verdict"]["kind"] == "verified", "the emulation has the header too"
    assert kernel["flags"] == "build/compile_commands.json, entry of this file"
    assert kernel["build"]["arch"] == "sm_75"
    assert sum("builds for sm_35, which" in note for note in told["notes"]) == 1
    assert sum("/home lies outside of the workspace" in note for note in told["notes"]) == 1


def test_doctor_lists_each_flag_and_its_fate(project: Path) -> None:
    code, text = dice(project, "doctor", "src/shift.cu", "--backend", "host", "--flag=-lineinfo", "--json")
    told = json.loads(text)
    assert code == 1 and len(told["notes"]) == 2
    assert told["origin"] == "build/compile_commands.json, entry of this file" and told["architecture"] == "sm_75"
    assert told["given"] == ["-DBASE=2.0f", "-lineinfo", f"-include {project / 'build/config.h'}"]
    fates = {row["written"]: (row["source"], row["fate"]) for row in told["flags"]}
    assert fates.keys() == {
        "/evil/nvcc", "-include config.h", "-DBASE=2.0f", "-I/home", "-arch=sm_35", "-c", "../src/shift.cu", "-lineinfo"
    }  # fmt: skip
    assert fates["-DBASE=2.0f"] == ("build/compile_commands.json", "a macro: passed on")
    assert fates["-lineinfo"][0] == "dice.compile_flags" and "a project never chooses one" in fates["/evil/nvcc"][1]
    code, text = dice(project, "doctor", "src/shift.cu", "--backend", "host", "--set", "compile_commands=off")
    assert code == 0 and "no flags of a build" in text and "compiled for sm_90 with: no flags" in text
