"""What a Python program says of the functions that it calls: tensors, numbers, and the reference of `Model`."""

from pathlib import Path

import numpy as np
import pytest

from dice_lsp.source.python_program import MODULES, Caller, Tensor, callers, constants, renamed
from dice_lsp.worker.torch_expression import evaluate_torch

HEAD = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

extension = load_inline(name="e", cpp_sources="", cuda_sources="", functions=["f_cuda"])
ROWS, COLUMNS = 16, 1 << 10
"""
INPUTS = """
def get_inputs():
    x = torch.rand(ROWS, COLUMNS).cuda()
    return [x, torch.randn((ROWS, COLUMNS), device="cuda")]

def get_init_inputs():
    return [1]
"""
NEW = """
class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.f = extension
        self.eps = eps

    def forward(self, x, y):
        x = x.contiguous()
        return self.f.f_cuda(x, y.contiguous(), self.eps)
"""
NAMES = {"f_cuda": "f_cuda"}


def model(body: str, init: str = "") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    extra = "".join(f"        {line}\n" for line in init.splitlines())
    return (
        "\nclass Model(nn.Module):\n    def __init__(self, dim, eps: float = 1e-5):\n        super().__init__()\n"
        f"        self.dim = dim\n        self.eps = eps\n{extra}\n    def forward(self, a, b):\n{lines}"
    )


def caller(text: str) -> Caller:
    return callers(text, NAMES)["f_cuda"]


def test_a_call_has_the_inputs_of_its_program() -> None:
    text = HEAD + model("return a + b") + INPUTS + NEW
    x, y = Tensor((16, 1024), init="uniform(0,1)"), Tensor((16, 1024))
    assert caller(text) == Caller((x, y, 1e-5), ("x", "y", None), "x + y")


@pytest.mark.parametrize(
    ("body", "init", "expected"),
    [
        ("return torch.relu(a) @ b", "", "torch.relu(x) @ y"),
        ("c = a * 2\nc = F.gelu(c)\nreturn c - b", "", "torch.nn.functional.gelu(x * 2) - y"),
        ("return a.sum(dim=self.dim, keepdim=True) / (b + self.eps)", "", "x.sum(dim=1, keepdim=True) / (y + 1e-05)"),
        ("return self.act(a) + b", "self.act = nn.LeakyReLU(0.2)",
         "torch.nn.functional.leaky_relu(x, negative_slope=0.2) + y"),
        ("return self.act(a) + b", "self.act = nn.Softmax(dim=dim)", "torch.softmax(x, dim=1) + y"),
        ("return a[:, :ROWS] * math.sqrt(2) + b", "", "x[:, :16] * math.sqrt(2) + y"),
    ],
)  # fmt: skip
def test_forward_is_one_expression(body: str, init: str, expected: str) -> None:
    assert caller(HEAD + model(body, init) + INPUTS + NEW).reference == expected


@pytest.mark.parametrize(
    ("body", "init"),
    [
        ("if a.sum() > 0:\n    return a\nreturn b", ""),
        ("for i in range(3):\n    a = a + b\nreturn a", ""),
        ("a += b\nreturn a", ""),
        ("return a.add_(b)", ""),
        ("return a, b", ""),
        ("return F.dropout(a) + b", ""),
        ("return self.norm(a) + b", "self.norm = nn.BatchNorm1d(4)"),
        ("return self.linear(a) + b", "self.linear = nn.Linear(4, 4)"),
        ("return self.act(a) + b", "self.act = nn.ReLU(inplace=True)"),
        ("return self.act(a) + b", "self.act = nn.ReLU()\nself.act = nn.Tanh()"),
        ("return unknown(a) + b", ""),
        ("return a + torch.randn(4) + b", ""),
        ("return a.cuda_kernel(b).masked_fill_(b > 0, 1)", ""),
    ],
)
def test_what_is_not_plain_is_no_reference(body: str, init: str) -> None:
    found = caller(HEAD + model(body, init) + INPUTS + NEW)
    assert found.reference is None and found.arguments[1] == Tensor((16, 1024))


@pytest.mark.parametrize(
    "forward",
    [
        "return self.f.f_cuda(x, y, 1.0) * 2",
        "return self.f.f_cuda(self.f.f_cuda(x, y, 1.0), y, 1.0)",
        "if x.dim() > 2:\n            return x\n        return self.f.f_cuda(x, y, 1.0)",
        "x.mul_(2)\n        return self.f.f_cuda(x, y, 1.0)",
        "z = self.f.f_cuda(x, y, 1.0)\n        return z + x",
    ],
)
def test_a_call_that_does_not_give_the_whole_result_has_no_reference(forward: str) -> None:
    new = NEW[: NEW.index("        x = x.contiguous")] + f"        {forward}\n"
    assert callers(HEAD + model("return a + b") + INPUTS + new, NAMES)["f_cuda"].reference is None


def test_an_argument_that_was_changed_is_not_the_parameter() -> None:
    new = NEW.replace("x = x.contiguous()", "x = x.t().contiguous()")
    found = caller(HEAD + model("return a + b") + INPUTS + new)
    assert found.names == (None, "y", None) and found.arguments[0] is None
    assert found.reference is not None and renamed(found.reference, {"y": "q"}) is None


def test_a_plain_call_has_what_its_script_makes() -> None:
    text = HEAD + "x = torch.zeros(ROWS, 3, dtype=torch.float16).cuda()\nn = x\nextension.f_cuda(x, n, 4)\n"
    tensor = Tensor((16, 3), "float16", "zeros")
    assert caller(text) == Caller((tensor, tensor, 4))
    assert caller(text + "extension.f_cuda(x, torch.zeros(5), 4)\n").arguments == (tensor, None, 4)
    assert caller(text.replace("n = x", "n = x.t()")).arguments == (tensor, None, 4)


@pytest.mark.parametrize(
    ("made", "init"),
    [
        ("torch.randn(4)", "normal"),
        ("torch.rand(4).cuda()", "uniform(0,1)"),
        ("torch.rand(4) + 1e-5", "uniform(1e-05,1.00001)"),
        ("2 * torch.rand(4) - 1", "uniform(-1,1)"),
        ("1 - torch.rand(4)", ""),
        ("torch.randn(4) * 3", ""),
        ("torch.rand(4) * torch.rand(4)", ""),
        ("torch.ones(4)", "ones"),
        ("torch.full((4,), 2.5)", "uniform(2.5,2.5)"),
        ("torch.randint(10, (4,))", "int(0,10)"),
        ("torch.randint(-3, 10, size=(4,), dtype=torch.int32)", "int(-3,10)"),
        ("torch.randint(low=1, high=5, size=(4,))", "int(1,5)"),
        ("torch.empty(4)", ""),
    ],
)
def test_values_are_those_that_the_program_makes(made: str, init: str) -> None:
    (tensor,) = caller(HEAD + f"extension.f_cuda({made})\n").arguments
    assert isinstance(tensor, Tensor) and tensor.shape == (4,) and tensor.init == init


def test_weights_that_both_models_make_alike_have_a_name() -> None:
    weight = "self.w = nn.Parameter(torch.randn(dim, 8))"
    new = NEW.replace("self.eps = eps", f"self.eps = eps\n        {weight}").replace("self.eps)", "self.w)")
    text = HEAD + model("return a * self.w + b", weight) + INPUTS + new
    found = caller(text)
    assert found.names == ("x", "y", "self_w") and found.reference == "x * self_w + y"
    assert found.arguments[2] == Tensor((1, 8))
    other = text.replace(weight, "self.w = nn.Parameter(torch.rand(dim, 8))", 1)
    assert caller(other).names == ("x", "y", None) and caller(other).reference is None


@pytest.mark.parametrize("call", ["nn.Tanh()(a)", "self.f(a)"])
def test_functions_and_modules_made_in_place(call: str) -> None:
    reference = caller(HEAD + model(f"return {call} + b", "self.f = torch.tanh") + INPUTS + NEW).reference
    assert reference == "torch.tanh(x) + y"


def test_names_are_replaced_wherever_they_stand() -> None:
    assert renamed("torch.relu(x) + x * y", {"x": "a", "y": "b"}) == "torch.relu(a) + a * b"
    assert renamed("x + y", {"x": "a"}) is None
    assert renamed("x * y", {"x": "a + b", "y": "2"}) == "(a + b) * 2"


@pytest.mark.parametrize("text", ["def f(:", "x = (" * 5000, "\0", "", "class Model: pass"])
def test_bad_text_says_nothing(text: str) -> None:
    assert callers(text, NAMES) == {} and constants(text) == {}


def test_constants_are_what_no_statement_changes() -> None:
    text = "N = 4\nM = N * 2\nT = 'float'\nK = 1\nK = 2\nG = 3\nfor i in range(2):\n    L = i\ndef f():\n    global G\n    G = 1\n"
    assert constants(text) == {"N": "4", "M": "8", "T": "float"}


ARGUMENTS = {
    "LeakyReLU": "0.2", "ELU": "0.7", "CELU": "0.7", "GELU": "'tanh'", "Softplus": "2.0, 5.0", "Hardtanh": "-0.5, 0.25",
    "Softmax": "1", "LogSoftmax": "1", "Softmin": "1", "MaxPool1d": "2", "MaxPool2d": "2, 2, 1", "AvgPool1d": "2",
    "AvgPool2d": "3, 2, 1", "CosineSimilarity": "1", "GLU": "1",
}  # fmt: skip


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_is_the_function_that_torch_has_for_it(kind: str) -> None:
    torch = pytest.importorskip("torch")
    sizes = (2, 3, 8, 8) if kind.endswith("2d") else (3, 4, 8) if kind.endswith("1d") else (4, 6)
    a, b = torch.randn(sizes, dtype=torch.float64), torch.randn(sizes, dtype=torch.float64)
    two = kind in ("CosineSimilarity", "MSELoss", "L1Loss")
    call = "self.m(a, b)" if two else "self.m(a)"
    made = getattr(torch.nn, kind)(*eval(f"({ARGUMENTS.get(kind, '')},)" if kind in ARGUMENTS else "()"))
    text = HEAD + model(f"return {call}", f"self.m = nn.{kind}({ARGUMENTS.get(kind, '')})") + INPUTS + NEW
    reference = caller(text).reference
    assert reference is not None
    (result,) = evaluate_torch(reference, {"x": a.numpy(), "y": b.numpy()})
    np.testing.assert_allclose(result, made(*((a, b) if two else (a,))).numpy(), rtol=1e-12)


def test_this_file_is_no_program_of_that_kind() -> None:
    assert callers(Path(__file__).read_text(), NAMES) == {}
