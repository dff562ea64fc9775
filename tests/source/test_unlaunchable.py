"""What no launch from here can give a kernel is said in one sentence, and only where the kernel needs it."""

import pytest

from dice_lsp.source.kernels import parse
from dice_lsp.source.unlaunchable import opaque_kind, why_not

CONSTANT = """
__constant__ float coef[9];
#define TAP(i) coef[i]
__device__ float tap(int i) { return coef[i]; }
__device__ float through(int i) { return tap(i); }
__global__ void direct(float* x) { x[0] = coef[1]; }
__global__ void by_macro(float* x) { x[0] = TAP(1); }
__global__ void by_function(float* x) { x[0] = through(2); }
__global__ void other(float* x) { x[0] = 1; /* coef */ }
"""


def said(text: str, name: str) -> tuple[str, ...]:
    model = parse(text)
    return why_not(next(kernel for kernel in model.kernels if kernel.name == name), model)


@pytest.mark.parametrize("name", ["direct", "by_macro", "by_function"])
@pytest.mark.parametrize(
    "call",
    [
        "cudaMemcpyToSymbol(coef, h, sizeof h);",
        "check(cudaMemcpyToSymbolAsync(ours::coef, h, 4, 0, cudaMemcpyHostToDevice, s));",
        "cudaMemcpyToSymbol((const void*)coef, h, 36);",
        "float* p; cudaGetSymbolAddress((void**)&p, coef); cudaMemcpy(p, h, 36, cudaMemcpyHostToDevice);",
    ],
)
def test_memory_that_the_program_sets_by_its_symbol(name, call):
    (sentence,) = said(f"{CONSTANT}int main() {{ float h[9]; {call} }}", name)
    assert sentence.startswith("`coef` is set by the program (cuda") and "dice-lsp capture" in sentence


def test_a_kernel_that_does_not_read_it_may_be_launched():
    assert said(CONSTANT + "int main() { cudaMemcpyToSymbol(coef, h, 36); }", "other") == ()


@pytest.mark.parametrize(
    "host", ["", "// cudaMemcpyToSymbol(coef, h, 36);", "int main() { cudaMemcpyFromSymbol(h, coef, 36); }"]
)
def test_memory_that_nobody_sets_is_as_the_text_says(host):
    assert said(CONSTANT + host, "direct") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__global__ void k(float** rows) { }", "rows is a pointer to pointers"),
        ("__global__ void k(cudaTextureObject_t image) { }", "`image` is a texture"),
        ("__global__ void k(const cudaSurfaceObject_t image) { }", "`image` is a surface"),
        ("__global__ void k(const __grid_constant__ CUtensorMap map) { }", "`map` is a tensor map"),
        ("texture<float, 2> image;\n__global__ void k(float* y) { y[0] = tex2D(image, 0, 0); }", "`image` is a texture"),
        ("__device__ __managed__ int steps = 1;\n__global__ void k(int* y) { y[0] = steps; }", "`steps` is managed memory"),
    ],
)  # fmt: skip
def test_parameters_and_memory_that_are_the_programs(text, words):
    (sentence,) = said(text, "k")
    assert sentence.startswith(words)


def test_plain_kernels_need_nothing():
    text = "texture<float, 2> image;\n__managed__ int n;\n__global__ void k(const float* x, float* y, int m) { y[0] = x[m]; }"
    assert said(text, "k") == ()
    assert opaque_kind("float") is None and opaque_kind("cudaTextureObject_t") == "texture"
