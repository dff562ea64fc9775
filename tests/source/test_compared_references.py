"""CPU functions that a program compares with a kernel are its reference, whatever their parameters; doubtful ones are not."""

import pytest

from dice_lsp.records import LaunchSpec
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

_PROGRAM = """
#include <cstdlib>
void rows_reference(float* out, const float* in, const float* scale, int B, int T, int C) {
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int c = 0; c < C; c++) out[(b * T + t) * C + c] = in[(b * T + t) * C + c] * scale[c];
}
__global__ void multiply(float* y, const float* x, const float* w, int N, int C) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) for (int c = 0; c < C; c++) y[i * C + c] = x[i * C + c] * w[c];
}
__global__ void twice(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= 2;
}
void multiply_all(float* y, const float* x, const float* w, int B, int T, int C) {
    int N = B * T;
    multiply<<<(N + 127) / 128, 128>>>(y, x, w, N, C);
}
int main() {
    int B = 8, T = 64, C = 32;
    float* out = (float*)malloc(B * T * C * sizeof(float));
    float* in = (float*)malloc(B * T * C * sizeof(float));
    float* scale = (float*)malloc(C * sizeof(float));
    for (int i = 0; i < B * T * C; i++) in[i] = rand() / 7.0f;
    for (int i = 0; i < C; i++) scale[i] = rand() / 7.0f;
    float *d_out, *d_in, *d_scale;
    cudaMalloc(&d_out, B * T * C * sizeof(float));
    cudaMalloc(&d_in, B * T * C * sizeof(float));
    cudaMalloc(&d_scale, C * sizeof(float));
    cudaMemcpy(d_in, in, B * T * C * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(d_scale, scale, C * sizeof(float), cudaMemcpyHostToDevice);
    rows_reference(out, in, scale, B, T, C);
    multiply_all(d_out, d_in, d_scale, B, T, C);
    validate_result(d_out, out, B * T * C);
}
"""


def _spec(text: str, name: str = "multiply") -> LaunchSpec:
    model = parse(text)
    return launch_spec(text, next(kernel for kernel in model.kernels if kernel.name == name), model)


def test_a_function_with_other_parameters_is_bound_by_the_programs_copies_and_comparison() -> None:
    spec = _spec(_PROGRAM)
    assert spec.reference is not None and spec.reference.text == "rows_reference"
    assert spec.reference.arguments == {
        "out": "y", "in": "x", "scale": "w", "B": "1", "T": "N", "C": "C",
    }  # fmt: skip


def test_the_result_may_come_back_before_it_is_compared() -> None:
    text = _PROGRAM.replace(
        "validate_result(d_out, out, B * T * C);",
        "float* back = (float*)malloc(B * T * C * sizeof(float));"
        "cudaMemcpy(back, d_out, B * T * C * sizeof(float), cudaMemcpyDeviceToHost);"
        "compareL2(back, out, B * T * C);",
    )
    reference = _spec(text).reference
    assert reference is not None and reference.text == "rows_reference"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    validate_result(d_out, out, B * T * C);\n", "", id="nothing-is-compared"),
        pytest.param(
            "    validate_result(",
            "    twice<<<(B * T * C + 127) / 128, 128>>>(d_out, B * T * C);\n    validate_result(",
            id="another-kernel-had-a-part",
        ),
        pytest.param("    validate_result(", "    cublasSscal(handle, n, d_out);\n    validate_result(", id="a-library-too"),
        pytest.param(
            "cudaMemcpy(d_scale, scale", "cudaMemcpy(d_scale, in", id="other-data-than-the-function-has"
        ),
        pytest.param(
            "    rows_reference(", "    shuffle(in, B * T * C);\n    rows_reference(", id="changed-after-the-copy"
        ),
        pytest.param("rows_reference(out, in, scale, B, T, C);", "rows_reference(out, in, scale, B, T, 32);", id="size-as-a-number"),
        pytest.param("(N + 127) / 128, 128>>>(y, x, w, N, C)", "(N + 127) / 128, 128>>>(y, x, w, N, T)", id="told-a-factor-too"),
        pytest.param("int B, int T, int C) {\n    for", "int B, int T, int C, int unused = 1) {\n    for", id="a-default"),
        pytest.param("const float* scale, int B", "float* scale, int B", id="the-function-may-write-an-input"),
        pytest.param(
            "    multiply_all(d_out",
            "    cudaMemset(d_out, 0, B * T * C * sizeof(float));\n    multiply_all(d_out",
            id="adds-to-what-the-program-set",
        ),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_no_reference(old: str, new: str) -> None:
    assert old in _PROGRAM
    text = _PROGRAM.replace(old, new)
    if "cudaMemset" in new:
        text = text.replace("y[i * C + c] = x", "y[i * C + c] += x")
    assert _spec(text).reference is None


def test_a_way_that_the_same_run_does_not_take_does_not_count() -> None:
    text = _PROGRAM.replace("int main() {", "int main(int argc, char** argv) {\n    int way = atoi(argv[1]);")
    text = text.replace(
        "    multiply_all(d_out",
        "    switch (way) { case 1: multiply_all(d_out, d_in, d_scale, B, T, C); break;"
        " case 2: twice<<<8, 128>>>(d_out, 1024); break; }\n    if (way == 3) multiply_all(d_out",
    )
    reference = _spec(text).reference
    assert reference is not None and reference.text == "rows_reference"
    assert _spec(text, "twice").reference is None


def test_a_directive_may_name_it() -> None:
    text = _PROGRAM.replace("__global__ void multiply", "//dice: ref rows_reference\n__global__ void multiply")
    reference = _spec(text).reference
    assert reference is not None and reference.arguments["T"] == "N"
