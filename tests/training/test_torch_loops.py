"""Loops made of torch expressions, compiled and compared with torch itself."""

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from dice_lsp.diffusion.layout_psm import compose
from dice_lsp.diffusion.torch_loops import as_loops
from dice_lsp.records import FillRequest

SIZES = {"rows": 5, "cols": 7, "inner": 4, "n": 11, "batch": 3}
INPUTS = {
    "x": ["rows", "cols"], "z": ["rows", "cols"], "b": ["cols"], "r": ["rows"], "A": ["rows", "inner"],
    "B": ["inner", "cols"], "Bt": ["cols", "inner"], "v": ["n"], "w": ["n"], "p": ["batch", "rows", "cols"],
    "P": ["batch", "rows", "inner"], "Q": ["batch", "inner", "cols"],
}  # fmt: skip
EXPRESSIONS = [
    ("torch.relu(x + b)", ["rows", "cols"]),
    ("x * r[:, None] - z", ["rows", "cols"]),
    ("x - x.mean(dim=1, keepdim=True)", ["rows", "cols"]),
    ("x / (x.abs().sum(dim=0, keepdim=True) + 1e-3)", ["rows", "cols"]),
    ("torch.softmax(x, dim=-1)", ["rows", "cols"]),
    ("F.log_softmax(x, dim=1)", ["rows", "cols"]),
    ("torch.softmax(x, dim=0)", ["rows", "cols"]),
    ("A @ B", ["rows", "cols"]),
    ("torch.relu(A @ Bt.t() + b)", ["rows", "cols"]),
    ("torch.bmm(P, Q)", ["batch", "rows", "cols"]),
    ("(A @ B).sum(dim=1)", ["rows"]),
    ("torch.mv(x, b)", ["rows"]),
    ("torch.dot(v, w)", ["1"]),
    ("(v * w).sum()", ["1"]),
    ("x.amax(dim=1) - x.amin(dim=1)", ["rows"]),
    ("torch.logsumexp(x, dim=1)", ["rows"]),
    ("(x - b).pow(2).sum(dim=1).sqrt()", ["rows"]),
    ("torch.norm(x, dim=1)", ["rows"]),
    ("x.T", ["cols", "rows"]),
    ("torch.outer(v, w)", ["n", "n"]),
    ("p.mean(dim=(1, 2))", ["batch"]),
    ("p.sum(dim=1)", ["batch", "cols"]),
    ("p * b + r[:, None]", ["batch", "rows", "cols"]),
    ("torch.flip(x, [1])", ["rows", "cols"]),
    ("v.unsqueeze(1) - w", ["n", "n"]),
    ("torch.where(v > 0, v, s * (torch.exp(v) - 1))", ["n"]),
    ("torch.where((v > 0) & (w < 0.5), v, -w)", ["n"]),
    ("-v ** 2 * 2 - (-3) / (1 + w.abs()) - (v - (w - 1))", ["n"]),
    ("torch.clamp(v, -0.5, 0.5) + torch.clamp(w, min=0)", ["n"]),
    ("torch.sigmoid(v) * torch.tanh(w) + F.silu(v)", ["n"]),
    ("torch.maximum(v, w) / torch.hypot(v, w).sqrt()", ["n"]),
    ("torch.rsqrt(v * v + 1) + torch.erf(w) + torch.round(v * 4)", ["n"]),
    ("torch.pow(v.abs() + 0.1, 1.5) + torch.square(w) + torch.reciprocal(v * v + 2)", ["n"]),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("loops")
    names = ", ".join([f"const float* {name}" for name in INPUTS] + [f"int {name}" for name in SIZES] + ["float s"])
    parts = ["#include <cfloat>", "#include <cmath>"]
    for number, (expression, extents) in enumerate(EXPRESSIONS):
        body = as_loops(expression, INPUTS, [*SIZES, "s"], "out", extents, "float")
        assert body is not None, expression
        parts.append(f'extern "C" void f{number}(float* out, {names}) {body}')
    (folder / "loops.cpp").write_text("\n".join(parts))
    command = ["g++", "-O1", "-w", "-shared", "-fPIC", str(folder / "loops.cpp"), "-o", str(folder / "loops.so")]
    subprocess.run(command, check=True, timeout=120)
    return ctypes.CDLL(str(folder / "loops.so"))


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=[expression for expression, _ in EXPRESSIONS])
def test_loops_do_what_torch_does(library: ctypes.CDLL, number: int) -> None:
    expression, extents = EXPRESSIONS[number]
    generator = torch.Generator().manual_seed(number)
    tensors = {
        name: torch.randn([SIZES[extent] for extent in shape], generator=generator) for name, shape in INPUTS.items()
    }
    scope = {**tensors, "s": 0.3, "torch": torch, "F": torch.nn.functional}
    expected = eval(expression, {}, scope)
    out = torch.full([SIZES.get(extent, 1) for extent in extents], 1e9)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (out, *tensors.values())]
    getattr(library, f"f{number}")(*pointers, *SIZES.values(), ctypes.c_float(0.3))
    torch.testing.assert_close(out.view(-1), expected.reshape(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "expression",
    [
        "x.cumsum(1)", "torch.unknown(x)", "x[1:]", "x +", "x @ x", "x if x else x", "[x]", "x.max(dim=1)",
        "__import__('os')", "x + y", "()" * 300,
    ],
)  # fmt: skip
def test_what_is_not_known_has_no_loops(expression: str) -> None:
    assert as_loops(expression, INPUTS, ["s"], "out", ["rows", "cols"], "float") is None


def test_integers_keep_their_operators() -> None:
    inputs = {"a": ["n"], "c": ["n"]}
    assert as_loops("(a & 255) ^ (c << 3)", inputs, ["n"], "out", ["n"], "int") == (
        "{ for (int i = 0; i < n; i++) { out[i] = (a[i] & 255) ^ (c[i] << 3); } }"
    )
    assert as_loops("a / c", inputs, ["n"], "out", ["n"], "int") is None
    assert as_loops("torch.exp(a)", inputs, ["n"], "out", ["n"], "int") is None


def test_a_torch_reference_is_read_as_loops() -> None:
    head = "//dice: in x[rows, cols], b[cols]; out y[rows, cols]; ref torch: torch.relu(x + b)\n"
    head += "__global__ void k(const float* x, const float* b, float* y, int rows, int cols) {"
    request = FillRequest(head, "}", "", "", None, "torch.relu(x + b)", "", "", 1)
    loops = "{ for (int i = 0; i < rows; i++) for (int j = 0; j < cols; j++) y[i * cols + j] = fmaxf(x[i * cols + j] + b[j], 0.0f); }"
    same = FillRequest(
        head.replace("; ref torch: torch.relu(x + b)", ""), "}", "", "",
        f"void f(float* x, float* b, float* y, int rows, int cols) {loops}", None, "", "", 1,
    )  # fmt: skip
    assert compose(request).text == compose(same).text
    unknown = FillRequest(head.replace("torch.relu(x + b)", "x.cumsum(1)"), "}", "", "", None, "x.cumsum(1)", "", "", 1)
    assert " torch V" in compose(unknown).text
