"""A project's architectures on a card: what it builds for, where that runs here, else what the card is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.gpu.support import record

KERNEL = """\
void scale_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = FACTOR * x[i]; }
//dice: n = 100000 | 1000 | 33; ref scale_cpu
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
"""


def checked(folder: Path, flags: str) -> tuple[dict[str, Any], list[str]]:
    """The kernel as `check` tells of it when the project is built with these flags, and what it notes."""
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "scale.cu").write_text(KERNEL)
    entry = {"directory": str(folder), "file": "scale.cu", "command": f"nvcc -DFACTOR=2.0f {flags} -c scale.cu"}
    (folder / "compile_commands.json").write_text(json.dumps([entry]))
    argv = [sys.executable, "-m", "dice_lsp", "check", "scale.cu", "--json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    (kernel,) = told["kernels"]
    assert kernel["verdict"]["kind"] == "verified" and kernel["evidence"]["device"] != "host", kernel["verdict"]
    assert kernel["flags"] == "compile_commands.json, entry of this file"
    return kernel, told["notes"]


def test_kernels_are_compiled_for_the_card_whatever_the_project_builds_for(tmp_path: Path) -> None:
    kernel, notes = checked(tmp_path, "-arch=native")
    card = kernel["build"]["arch"]
    assert not notes, notes
    old, notes = checked(tmp_path, "-gencode arch=compute_35,code=sm_35")
    told = f"the project builds for sm_35 and the GPU is {card}: kernels are compiled for {card}"
    assert old["build"]["arch"] == card and notes == [told]
    own, notes = checked(
        tmp_path, f"-gencode arch=compute_{card[3:]}a,code={card}a -gencode arch=compute_80,code=sm_80"
    )
    assert own["build"]["arch"] == f"{card}a" and not notes, "its own variant may use what the plain one has not"
    record("flags", "native, sm_35, own variant", card, old["build"]["arch"], own["build"]["arch"])
