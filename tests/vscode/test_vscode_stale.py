"""Text that moves between an offer and its acceptance: wide characters, CRLF and tabs in a real VS Code."""

from pathlib import Path

import pytest

from tests.vscode.editor import run_suites, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KERNEL = """\
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


def test_edits_between_offer_and_acceptance(tmp_path: Path) -> None:
    wide = KERNEL.replace("		y[i] = a * x[i]; // ✅", "		y[i] = /* 归约 ✅ 🚀 */ a * x[i];")
    plain = ("lf.cu", "inside.cu", "gone.cu")
    workspace(
        tmp_path,
        {"crlf.cu": KERNEL.replace("\n", "\r\n").encode(), "wide.cu": wide, **dict.fromkeys(plain, KERNEL)},
    )
    seen = run_suites(tmp_path, ["stale"], deadline_s=400)
    assert len(seen.tests) == 5
