"""The comparison of inferred launches with those of programs tells right from wrong, and neither from what was not run."""

import argparse
import json
import struct
from pathlib import Path

import pytest

from tests.coverage import compare

TEXT = """
template <int WIDTH>
__global__ void widen(const float* x, float* y, int n) {
    int i = blockIdx.x * WIDTH + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void plain(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
int main(int argc, char** argv) {
    int n = 1000;
    float *x, *y;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    plain<<<(n + 127) / 128, 128>>>(x, y, n);
    widen<64><<<(n + 63) / 64, 64>>>(x, y, n);
}
"""


def launch(kernel: str, name: str, grid: int, block: int, n: int, room: int = 4000) -> dict[str, object]:
    pointer = {"data": "00" * 8, "size": 8, "memory": [room, 0]}
    size = {"data": struct.pack("<i", n).hex(), "size": 4, "memory": None}
    return {
        "file": "a.cu", "kernel": kernel, "name": name, "grid": [grid, 1, 1], "block": [block, 1, 1], "smem_bytes": 0,
        "order": 1, "problems": [], "device": "", "parameters": [pointer, pointer, size],
    }  # fmt: skip


def said(folder: Path, capsys: pytest.CaptureFixture[str], *launches: dict[str, object]) -> tuple[int, str]:
    (folder / "a.cu").write_text(TEXT)
    (folder / "out.json").write_text(json.dumps({"a.cu": {"kernels": list(launches)}}))
    code = compare.table(argparse.Namespace(tree=folder, file=folder / "out.json", details=True))
    return code, capsys.readouterr().out


RIGHT = launch("plain", "plain(float const*, float*, int)", 8, 128, 1000)
WIDEN = "void widen<{}>(float const*, float*, int)"


def test_what_agrees_is_right(tmp_path, capsys):
    code, out = said(tmp_path, capsys, RIGHT, launch("widen", WIDEN.format(64), 16, 64, 1000))
    assert code == 0 and "Right: 100.0%" in out and "2 of 2 kernels without a wrong one" in out


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"grid": [9, 1, 1]}, "grid: claimed [8, 1, 1], launched [9, 1, 1]"),
        ({"block": [64, 1, 1]}, "block: claimed [128, 1, 1], launched [64, 1, 1]"),
        ({"smem_bytes": 16}, "smem_bytes: claimed 0, launched 16"),
    ],
)
def test_each_field_that_differs_is_wrong(tmp_path, capsys, changed, words):
    code, out = said(tmp_path, capsys, {**RIGHT, **changed})
    assert code == 1 and words in out


def test_a_size_and_a_buffer_that_is_too_small_are_wrong(tmp_path, capsys):
    code, out = said(tmp_path, capsys, launch("plain", "plain(float const*, float*, int)", 8, 128, 999, 3996))
    assert code == 1 and "scalar n: claimed 1000, launched 999" in out and "claimed 4000 bytes, there are 3996" in out


def test_a_program_may_allocate_more(tmp_path, capsys):
    assert said(tmp_path, capsys, launch("plain", "plain(float const*, float*, int)", 8, 128, 1000, 9999))[0] == 0


def test_another_instance_is_no_counterexample(tmp_path, capsys):
    code, out = said(tmp_path, capsys, RIGHT, launch("widen", WIDEN.format(32), 32, 32, 1000))
    assert code == 0 and "| instance |" in out


def test_programs_of_a_tree_have_the_sources_beside_them(tmp_path):
    (tmp_path / "one").mkdir()
    for name, text in {
        "a.cu": "int main() {}", "b.cu": "int main(int argc, char** argv) {}", "c.cpp": "void helper() {}",
        "gl.cu": "#include <GL/glut.h>\nint main() {}", "d.cuh": "",
    }.items():  # fmt: skip
        (tmp_path / "one" / name).write_text(text)
    found = {program.name: [path.name for path in program.others] for program in compare.programs(tmp_path, [])}
    assert found == {"one/a.cu": ["c.cpp"], "one/b.cu": ["c.cpp"]}
