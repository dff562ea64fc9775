"""Macros that take arguments: expanded as the preprocessor does, and what they write outside of functions."""

import time

import pytest

from dice_lsp.source.kernels import parse
from dice_lsp.source.macros import MAX_EXPANSION, expand

DEFINITIONS = r"""
#define TWICE(x) ((x) + (x))
#define NAME(a, b) a##_##b
#define QUOTED(x) #x
#define FIRST(a, ...) a
#define REST(a, ...) f(__VA_ARGS__)
#define NAMED(args...) g(args)
#define SELF(x) SELF(x + 1)
#define PLAIN TWICE(2)
#define LATE(x) NAME(x, TWICE)
#define EMPTY()
#define BESIDE(a, b) x a ## b
#define LONG(x) \
  first(x); /* a note */ \
  second(x) // the end
"""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("TWICE(a)", "((a) + (a))"),
        ("TWICE(f(a, b))", "((f(a, b)) + (f(a, b)))"),
        ("TWICE (TWICE(1))", "((((1) + (1))) + (((1) + (1))))"),
        ("NAME(row, sum)", "row_sum"),
        ("NAME(, sum)", "_sum"),
        ("QUOTED(a + \"b\")", '"a + \\"b\\""'),
        ("FIRST(1, 2, 3)", "1"),
        ("REST(1, 2, 3)", "f(2, 3)"),
        ("NAMED(1, 2)", "g(1, 2)"),
        ("SELF(1)", "SELF(1 + 1)"),
        ("PLAIN", "((2) + (2))"),
        ("LATE(a)", "a_TWICE"),
        ("EMPTY()x", "x"),
        ("BESIDE(, y)", "x y"),
        ("BESIDE(y, )", "x y"),
        ("TWICE", "TWICE"),
        ("LONG(3)", "first(3); second(3)"),
        ('"TWICE(1)" /* TWICE(2) */', '"TWICE(1)" '),
        ("TWICE(1", "TWICE(1"),
    ],
)  # fmt: skip
def test_macros_are_expanded_as_the_preprocessor_does(written: str, expected: str) -> None:
    assert expand(written, parse(DEFINITIONS).macros) == expected


def test_an_expansion_has_a_limit() -> None:
    text = "#define A0 x x\n" + "".join(f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 40))
    started = time.process_time()
    assert len(expand("A39", parse(text).macros)) < 3 * MAX_EXPANSION
    assert time.process_time() - started < 20


KERNELS = """
#define BINARY(NAME, T, OP) \\
  __global__ void NAME(const T* a, const T* b, T* c, int n) { \\
    int i = blockIdx.x * blockDim.x + threadIdx.x; \\
    if (i < n) c[i] = a[i] OP b[i]; \\
  } \\
  void NAME##_launch(const T* a, const T* b, T* c, int n) { NAME<<<(n + 255) / 256, 256>>>(a, b, c, n); }
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define CHECK(call) do { if ((call) != 0) return; } while (0)
#define ENTRY __global__ void

BINARY(add, float, +)
BINARY(sub, double, -);
namespace ours {
  BINARY(mul, int, *)
}

KERNEL(fill, float* x, int n) {
  x[threadIdx.x] = n;
}
BINARY(quot, float, /)
ENTRY clear(float* x) { x[threadIdx.x] = 0; }

int main() { CHECK(cudaFree(0)); BINARY(no, kernel, here) }
"""


def test_kernels_that_a_macro_writes_are_found() -> None:
    kernels = {kernel.name: kernel for kernel in parse(KERNELS).kernels}
    assert list(kernels) == ["add", "sub", "mul", "fill", "quot", "clear"]
    lines = KERNELS.split("\n")
    for name in ("add", "sub", "mul", "quot"):
        kernel = kernels[name]
        assert kernel.macro == "BINARY" and lines[kernel.line].strip().startswith(f"BINARY({name}")
        assert KERNELS[kernel.start : kernel.end].startswith(f"BINARY({name}") and kernel.body_start == kernel.body_end
        assert [parameter.name for parameter in kernel.parameters] == ["a", "b", "c", "n"]
    assert kernels["mul"].qualified_name == "ours::mul" and kernels["sub"].parameters[0].element == "double"
    fill = kernels["fill"]
    assert fill.extern_c and fill.macro == "" and "x[threadIdx.x] = n" in KERNELS[fill.body_start : fill.body_end]
    assert lines[fill.line].startswith("KERNEL(fill")
    clear = kernels["clear"]
    assert clear.macro == "" and KERNELS[clear.start : clear.end].startswith("ENTRY clear"), (
        "the macro above is no part of it"
    )


def test_many_invocations_inside_of_functions_cost_little() -> None:
    text = "#define CHECK(x) do { x; } while (0)\nvoid f() {\n" + "CHECK(g());\n" * 100_000 + "}\n"
    started = time.process_time()
    assert parse(text).invocations == ()
    assert time.process_time() - started < 10


def test_a_header_full_of_comments_is_a_header() -> None:
    notes = "".join(f"  int kPart{n},  // {'what this part is for ' * 10}\n" for n in range(40))
    (kernel,) = parse(f"template <\n{notes}  int kLast>\n__global__ void wide(float* x) {{ x[0] = kLast; }}\n").kernels
    assert kernel.name == "wide" and len(kernel.template) == 41
