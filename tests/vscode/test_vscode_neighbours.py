"""The real clangd in the same VS Code: hints and problems of both for one file."""

import re
from pathlib import Path

import pytest

from tests.vscode import install
from tests.vscode.editor import log_of, run_suites, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BOTH = """\
#define __global__ __attribute__((global))
struct uint3 { unsigned x, y, z; };
extern const uint3 threadIdx, blockIdx, blockDim;

void saxpy_cpu(int n, float a, const float* x, float* y) {
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}

__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

void twice(float* x, float* y, int n) {
    auto half = 0.5f;
    saxpy_cpu(n, half, x, y);
}
"""


def test_clangd_beside_us(tmp_path: Path) -> None:
    # Its own idea of CUDA needs a toolkit; without one the few words that a kernel needs are declared by the file.
    flags = "-xcuda\n-nocudainc\n-nocudalib\n--cuda-host-only\n-Wno-unknown-cuda-version\n"
    header = BOTH[: BOTH.index("\n\n")]
    files = {
        "both.cu": BOTH.removeprefix(header).lstrip(),
        "clang.h": header + "\n",
        "compile_flags.txt": flags + "-include\nclang.h\n",
    }
    workspace(tmp_path, {f"neighbours/{name}": text for name, text in files.items()})
    seen = run_suites(
        tmp_path,
        ["neighbours"],
        neighbours=[install.DRIVER / "neighbour"],
        environment={"DICE_TEST_CLANGD": str(install.clangd())},
    )
    assert len(seen.tests) == 2
    errors = [line for line in log_of(tmp_path).splitlines() if re.search(r"\[error\]", line)]
    assert not errors
