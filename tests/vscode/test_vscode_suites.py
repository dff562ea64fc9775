"""One session in a real VS Code 1.100.3, with the real server, checkpoint and compilers; what happens is in the suites.

Starting the editor, the model and the judge takes longer than most suites, so all share one window. Each has a folder
of its own in the workspace.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import frozen

from tests.vscode.editor import ROOT, Seen, log_of, run_suites, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
BLANK = SAXPY[: SAXPY.index("    int i = blockIdx")] + "    \n" + SAXPY[SAXPY.index("}\n\nint main") :]
RELU = """\
void relu_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

__global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
"""
SCALE = """\
// 归约 共享内存 ✅ 🚀 的注释
void scale_cpu(int n, float a, const float* x, float* y) {
	for (int i = 0; i < n; i++)
		y[i] = a * x[i];
}

__global__ void scale(int n, float a, const float* x, float* y) { // 缩放 🚀
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = a * x[i]; // ✅
}
"""
WIDE = SCALE.replace("		y[i] = a * x[i]; // ✅", "		y[i] = /* 归约 ✅ 🚀 */ a * x[i];")


@frozen
class Suite:
    tests: int
    """How many there are: one that got lost must not pass for one that passed."""
    files: Mapping[str, str | bytes]


SUITES = {
    "session": Suite(6, {"saxpy.cu": SAXPY}),
    "ghost": Suite(2, {"saxpy.cu": SAXPY, "blank.cu": BLANK}),
    "files": Suite(3, {"saxpy.cu": SAXPY, "relu.cu": RELU}),
    "stale": Suite(
        5,
        {"crlf.cu": SCALE.replace("\n", "\r\n").encode(), "wide.cu": WIDE}
        | dict.fromkeys(("lf.cu", "inside.cu", "gone.cu"), SCALE),
    ),
    "python": Suite(
        3, {"program.py": (ROOT / "tests/data/program.py").read_text(), "plain.py": "import sys\n\nprint(sys.argv)\n"}
    ),
    "save": Suite(5, {"saxpy.cu": SAXPY}),
    "processes": Suite(5, {"saxpy.cu": SAXPY}),
}
STARTS = 3
"""At first, once for all that the suite `save` changes together, and for the restart in `processes`. One that was killed is
started again by the client, without a word."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vscode")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Seen:
    for name, suite in SUITES.items():
        workspace(folder, {f"{name}/{file}": text for file, text in suite.files.items()})
    return run_suites(folder, tuple(SUITES), deadline_s=1080, must_pass=False)


@pytest.mark.parametrize("name", SUITES)
def test_suite(name: str, seen: Seen) -> None:
    tests = [test for test in seen.tests if test["suite"] == name]
    assert len(tests) == SUITES[name].tests and not any(test["failure"] for test in tests), seen.account


def test_nothing_stays_and_nothing_was_started_in_vain(folder: Path, seen: Seen) -> None:
    assert not seen.failure and not seen.orphans, seen.account
    assert len([line for line in log_of(folder).splitlines() if "server: " in line]) == STARTS, seen.account
