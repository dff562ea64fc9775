"""When `Model.forward` is the reference of a kernel, and when it is not certain enough to be."""

from pathlib import Path

import pytest

from dice_lsp.records import LaunchSpec, Origin, Reference
from dice_lsp.source.embedded import document_of
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.python_calls import calls_of

EXTENSION = (Path(__file__).parent.parent / "data" / "inline_extension.py").read_text()
POINTWISE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a) + b

def get_inputs():
    return [torch.randn(16, 64), torch.randn(16, 64)]

source = """
__global__ void f_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(a[i], 0.0f) + b[i];
}

torch::Tensor f(torch::Tensor a, torch::Tensor b) {
    int n = a.numel();
    auto out = torch::empty_like(a);
    f_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
m = load_inline(name="m", cpp_sources="", cuda_sources=source, functions=["f"])

class ModelNew(nn.Module):
    def forward(self, a, b):
        return m.f(a, b)
'''


def spec_of(text: str) -> LaunchSpec:
    document = document_of("file:///p.py", 0, text)
    model = parse(document.text)
    return launch_spec(document.text, model.kernels[0], model, calls=calls_of(document))


def test_sizes_and_reference_of_a_pointwise_kernel() -> None:
    spec = spec_of(POINTWISE)
    assert spec.reference == Reference("torch", "torch.relu(a) + b", Origin.INFERRED) and not spec.unknown
    assert [(dim.name, dim.values[0]) for dim in spec.dims] == [("n", 1024)]
    assert [buffer.extents for buffer in spec.buffers] == [("n",)] * 3
    assert calls_of(document_of("file:///k.cu", 0, "__global__ void f() { }")) is None


def test_names_are_those_of_the_kernel() -> None:
    text = POINTWISE.replace("const float* a, const float* b, float* out", "const float* p, const float* q, float* r")
    text = text.replace("out[i] = fmaxf(a[i], 0.0f) + b[i]", "r[i] = fmaxf(p[i], 0.0f) + q[i]")
    reference = spec_of(text).reference
    assert reference is not None and reference.text == "torch.relu(p) + q"
    swapped = spec_of(POINTWISE.replace("return m.f(a, b)", "return m.f(b, a)")).reference
    assert swapped is not None and swapped.text == "torch.relu(b) + a"


def test_the_name_that_python_knows_may_be_another() -> None:
    binding = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &f, "f"); }\n"""\nm = load'
    text = POINTWISE.replace('"""\nm = load', binding).replace("m.f(a, b)", "m.forward(a, b)")
    assert spec_of(text).reference is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Another launch computes a part of it.
        ("return out;", "g_kernel<<<1, 1>>>(out.data_ptr<float>()); return out;"),
        ("    f_kernel<<<", "    f_kernel<<<1, 1>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), 1);\n    f_kernel<<<"),
        # What is returned is not what the kernel wrote.
        ("return out;", "out.mul_(2); return out;"),
        ("return out;", "scale(out); return out;"),
        ("int n = a.numel();", "int n = a.numel(); a.abs_();"),
        ("return out;", "return out * 2;"),
        ("return out;", "return a;"),
        ("auto out = torch::empty_like(a);", "auto out = torch::empty_like(a); auto more = torch::zeros_like(a);"),
        ("return out;", "if (n > 4) return a; return out;"),
        # The kernel changes an input.
        ("out[i] = fmaxf", "b[i] = 0; out[i] = fmaxf"),
        # Only a part of the tensor.
        ("a.data_ptr<float>(), b", "a.data_ptr<float>() + 4, b"),
        # Python does more than call it.
        ("return m.f(a, b)", "return m.f(a, b) + 1"),
        ("return m.f(a, b)", "return m.f(a * 2, b)"),
        # Shapes would matter, and the kernel sees a row of numbers.
        ("return torch.relu(a) + b", "return torch.softmax(a, dim=1) + b"),
        ("return torch.relu(a) + b", "return torch.cumsum(a, dim=0) + b"),
        ("return torch.relu(a) + b", "return a @ b"),
        ("return torch.relu(a) + b", "return torch.relu(a[0]) + b"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_no_reference(old: str, new: str) -> None:
    assert old in POINTWISE
    text = POINTWISE.replace(old, new).replace("const float* b, float* out", "float* b, float* out")
    assert spec_of(text).reference is None


def test_a_reference_that_needs_shapes_has_them() -> None:
    spec = spec_of(EXTENSION)
    assert spec.reference == Reference("torch", "torch.softmax(x * 0.5 + bias, dim=1)", Origin.INFERRED)
    assert [(dim.name, dim.values[0]) for dim in spec.dims] == [("rows", 48), ("columns", 96)]
    assert spec.scalars == {"scale": "0.5"} and not spec.unknown


def test_without_inputs_sizes_are_free_and_shapes_are_not_known() -> None:
    text = EXTENSION[: EXTENSION.index("def get_inputs")] + EXTENSION[EXTENSION.index("def get_init_inputs") :]
    spec = spec_of(text)
    assert spec.reference is None and spec.grid == ("cdiv(rows, 64)", "1", "1")
    assert all(dim.origin is Origin.DEFAULT for dim in spec.dims)


def test_values_are_those_of_the_program() -> None:
    text = POINTWISE.replace("[torch.randn(16, 64), ", "[torch.rand(16, 64) + 1, ")
    assert {buffer.name: buffer.init for buffer in spec_of(text).buffers if buffer.role.value == "in"} == {
        "a": "uniform(1,2)",
        "b": "normal",
    }
    # Of the square of a random number nothing is said, and a reference may not be defined for everything else.
    text = POINTWISE.replace("[torch.randn(16, 64), ", "[torch.randn(16, 64) * torch.randn(16, 64), ")
    assert spec_of(text).reference is None and spec_of(text).dims[0].values[0] == 1024


def test_a_size_that_the_kernel_is_not_given_stays_in_its_place() -> None:
    text = EXTENSION.replace("float scale, int rows, int columns", "float scale, int columns")
    text = text.replace("if (row >= rows) return;", "if (row >= 48) return;").replace(
        "scale, rows, columns)", "scale, columns)"
    )
    spec = spec_of(text)
    assert [buffer.extents for buffer in spec.buffers] == [("48 * columns",)] * 3
    assert spec.reference is not None


def test_a_directive_and_a_function_of_the_file_come_first() -> None:
    text = POINTWISE.replace('source = """', 'source = """\n//dice: ref torch: a + b')
    reference = spec_of(text).reference
    assert reference is not None and (reference.text, reference.origin) == ("a + b", Origin.DIRECTIVE)
