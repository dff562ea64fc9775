"""Saving, settings and several files in a real VS Code."""

from pathlib import Path

import pytest

from tests.vscode.editor import ROOT, log_of, run_suites, workspace

SAXPY = ROOT / "tests/data/saxpy.cu"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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


def test_save_tells_what_a_kernel_is_worth(tmp_path: Path) -> None:
    workspace(tmp_path, {"saxpy.cu": SAXPY})
    seen = run_suites(tmp_path, ["save"], deadline_s=400)
    assert len(seen.tests) == 5
    starts = [line for line in log_of(tmp_path).splitlines() if "server: " in line]
    assert len(starts) == 2, "one start, and one restart for all that was changed together"


def test_two_files(tmp_path: Path) -> None:
    workspace(tmp_path, {"saxpy.cu": SAXPY, "relu.cu": RELU})
    assert len(run_suites(tmp_path, ["files"]).tests) == 3
