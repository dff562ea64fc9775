"""A document of 100 000 lines is read in time, and nothing in the reading is quadratic."""

import time

import pytest

from dice_lsp.records import Document
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.positions import LineIndex
from dice_lsp.source.selection import region, relocate

BLOCK = """
/* Block %d: a helper, a kernel and its launch. */
#define TILE_%d 16
__device__ __forceinline__ float weight_%d(float a, const float* table) {
    // Nothing here { is a brace
    return a * table[0] + '"' - 1'000;
}

//dice: n = 1M | 1000
template <typename T, int BS = 256>
__global__ void __launch_bounds__(BS) kernel_%d(const T* __restrict__ x, T* y, float* table, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = 0.0f;
        for (int k = 0; k < TILE_%d; k++) {
            sum += weight_%d(x[i], table);
        }
        y[i] = sum; // "done"
    }
}

void run_%d(const float* x, float* y, float* table, int n) {
    dim3 block(256);
    kernel_%d<float><<<(n + 255) / 256, block>>>(x, y, table, n);
}
"""


def text_of(lines, mark=""):
    count = lines // BLOCK.count("\n")
    return (
        mark
        + "".join(BLOCK.replace("%d", str(number)) for number in range(count))
        + "\n" * (lines - count * BLOCK.count("\n"))
    )


def elapsed(function, *arguments):
    start = time.process_time()
    result = function(*arguments)
    return time.process_time() - start, result


@pytest.mark.parametrize("mark", ["", "// 归约 ✅ 😀\n"])
def test_a_hundred_thousand_lines(mark):
    text = text_of(100_000, mark)
    seconds, model = elapsed(parse, text)
    assert seconds < 3
    seconds, kernels = elapsed(lambda: model.kernels)
    assert seconds < 3 and len(kernels) == 100_000 // BLOCK.count("\n")
    kernel = kernels[-1]
    assert kernel.template == ("T", "BS") and model.kernel_at(kernel.body_start) is kernel
    seconds, (spec, directive) = elapsed(lambda: (launch_spec(text, kernel, model), parse_directives(text, kernel)))
    assert seconds < 4 and directive.problems == () and spec.dims[0].values == (1 << 20, 1000)
    document = Document("file:///big.cu", 1, text)
    seconds, found = elapsed(region, document, kernel.body_start + 20, kernel.body_start + 60)
    assert seconds < 1 and found.kernel is kernel
    edited = text.replace("kernel_0<float>", "kernel_0<double>", 1)
    seconds, place = elapsed(relocate, found, edited)
    assert seconds < 3 and edited[place[0] : place[1]] == found.middle
    # One edit later only what changed is read again.
    seconds, again = elapsed(lambda: parse(edited).kernels)
    assert seconds < 2 and len(again) == len(kernels)
    seconds, index = elapsed(LineIndex, text)
    assert seconds < 0.5 and index.position(len(text) - 1)[0] == index.line_count - 2


@pytest.mark.parametrize(
    "text",
    [
        "{" * 60_000,
        "__global__ " * 20_000,
        "__global__ void k() {\n" * 8_000,
        "#if A\n" * 40_000,
        "k<<<1, 2>>>(x);\n" * 5_000,
        "template <" * 20_000,
        "//dice: n = 1\n" * 20_000 + "__global__ void k(int n) {}",
        "void f() {\r" * 8_000,
        "a(" * 60_000,
        "namespace a {" * 20_000,
        "/*\n" * 60_000,
        "k<<<" * 20_000,
        "k<<<a," * 20_000,
        "void f() {" + "a<<<b " * 10_000 + "}",
        "x = (" + "{}" * 40_000,
        "a(" * 20_000 + "{" + "__global__ void k() {}",
        "__attribute__((" * 20_000 + "{",
        "template <" * 20_000 + "{}",
        "int a = {\n#if A\n" * 10_000,
        "__global__ void k() {" + "(" * 50_000 + "}",
        "__global__ void k(int n) {" + "if (n) {" * 3_000 + "}" * 3_000 + "}",
        "__global__ void k(int n) { n = " + "(" * 3_000 + "1" + ")" * 3_000 + "; }",
        "__global__ void k(float* x, int n) { x[0] = " + "n + " * 5_000 + "1; }",
    ],
)
def test_hostile_texts_take_linear_time(text):
    def everything():
        model = parse(text)
        for kernel in model.kernels[:3]:
            launch_spec(text, kernel, model)
        return model.kernels, model.functions, model.constants, model.launches, model.declarations

    seconds, _ = elapsed(everything)
    assert seconds < 6
