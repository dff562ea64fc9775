"""What is said about a directive that can be read and does not fit."""

import pytest

from dice_lsp.records import Weight
from dice_lsp.source.directive_review import cases_of, may_be_needless, needless, review
from dice_lsp.source.directives import Directive, parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

FILE = """#include <cuda_runtime.h>
void scale_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; i++) y[i] = 2 * x[i]; }
%s
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""
RUN = """int main() {
    const int n = 1 << 20;
    float *x, *y;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    scale<<<(n + 127) / 128, 128>>>(x, y, n);
}
"""
SHARED = """%s
__global__ void sum(const int* x, int* y, unsigned char* flags, int n) {
    extern __shared__ int part[];
    part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""


def reviewed(*lines, file=FILE, more=""):
    text = (file % "\n".join(lines)) + more
    model = parse(text)
    kernel = model.kernels[0]
    directive = parse_directives(text, kernel)
    given = launch_spec(text, kernel, model)
    bare = launch_spec(text, kernel, model, directive=Directive())
    problems = list(review(model, kernel, directive, given, bare))
    for clause in may_be_needless(directive):
        rest = parse_directives(text, kernel, without=[clause.start])
        hint = needless(model, kernel, directive, clause, given, launch_spec(text, kernel, model, directive=rest))
        problems += [] if hint is None else [hint]
    return text, problems


def fixed(text, problem):
    for start, end, new in sorted(problem.fixes[0].edits, reverse=True):
        text = text[:start] + new + text[end:]
    return next((line for line in text.splitlines() if "dice:" in line), "")


@pytest.mark.parametrize(
    ("line", "place", "message", "weight", "after"),
    [
        ("launch <<<n, {64, 64}>>>", "{64, 64}", "block has 4096 threads", Weight.ERROR, None),
        ("launch <<<n, {2, 2, 128}>>>", "{2, 2, 128}", "128 threads in z", Weight.ERROR, None),
        ("n = 1K | 0; launch <<<n / 1K, 32>>>", "n / 1K", "the grid is 0 x 1 x 1", Weight.ERROR, None),
        ("n = 0; launch <<<n, 32>>>", "n", "for n = 0", Weight.ERROR, None),
        ("launch <<<{1, 100000}, 32>>>", "{1, 100000}", "more than 65535 in y", Weight.ERROR, None),
        ("in x[n / 2]", "x[n / 2]", "x has 32 elements here, and scale seems to reach 64", Weight.WARNING,
         "//dice: n = 64; in x[n]"),
        ("in y[n]", "y[n]", "y is an input here, and scale writes to it", Weight.WARNING, "//dice: n = 64; out y[n]"),
    ],
)  # fmt: skip
def test_what_cannot_be_launched_and_what_the_body_contradicts(line, place, message, weight, after):
    line = line if line.startswith("n =") else f"n = 64; {line}"
    text, problems = reviewed(f"//dice: {line}")
    (problem,) = [p for p in problems if message in p.message]
    assert text[problem.start : problem.end] == place and problem.weight is weight
    assert not problem.message.endswith(".")
    if after is not None:
        assert fixed(text, problem) == after


def test_launch_bounds_bound_the_block():
    text = "//dice: n = 4; launch <<<n, 256>>>\n__global__ void __launch_bounds__(128) k(int n) {}\n"
    _, problems = reviewed(file="%s", more=text)
    assert any("__launch_bounds__ of k allows 128" in problem.message for problem in problems)


def test_another_block_than_the_programs_is_a_warning():
    text, problems = reviewed("//dice: n = 1K; launch <<<cdiv(n, 256), 256>>>", more=RUN)
    found = {text[p.start : p.end]: p for p in problems if p.weight is Weight.WARNING}
    assert "256" in found and "the block is 256 here and 128 at the" in found["256"].message
    assert fixed(text, found["256"]).endswith("launch <<<cdiv(n, 256), 128>>>")
    _, problems = reviewed("//dice: n = 1K; launch <<<cdiv(n, 128), 128>>>", more=RUN)
    assert not [p for p in problems if p.weight is Weight.WARNING]
    _, problems = reviewed("//dice: n = 1K; launch <<<cdiv(n, 256), 256>>>")
    assert not [p for p in problems if p.weight is Weight.WARNING], "there is no launch to contradict"


def test_a_launch_without_its_shared_memory():
    text, problems = reviewed("//dice: n = 256; launch <<<1, 256>>>", file=SHARED)
    (problem,) = [p for p in problems if "dynamic shared memory" in p.message]
    assert text[problem.start : problem.end] == "launch <<<1, 256>>>"
    _, problems = reviewed("//dice: n = 256; launch <<<1, 256, 4 * 256>>>", file=SHARED)
    assert not [p for p in problems if "dynamic shared memory" in p.message]


@pytest.mark.parametrize(
    ("init", "message", "after"),
    [
        ("in x[n]: uniform(0.5, 2.5)", "rounded to whole ones", "in x[n]: int(0, 2)"),
        ("in x[n]: uniform(0, 0.5)", "rounded to whole ones", "in x[n]: int(0, 100)"),
        ("io flags[n]: int(0, 300)", "unsigned char holds 0 to 255", "io flags[n]: int(0, 256)"),
        ("io flags[n]: int(-1, 3)", "unsigned char holds 0 to 255", "io flags[n]: int(0, 3)"),
        ("in x[n]: int(5, 5)", "empty range", None),
        ("in x[n]: perm(7)", "not whole permutations of 7", None),
        ("in x[n]: int(0, n)", None, None),
        ("in x[n]: perm(n)", None, None),
        ("in x[n]: normal", None, None),
        ("io flags[n]: int(0, 256)", None, None),
    ],
)
def test_first_values_that_a_type_cannot_hold(init, message, after):
    text, problems = reviewed(f"//dice: n = 256; {init}", file=SHARED)
    found = [p for p in problems if ": " in text[p.start - 4 : p.end] and "shared" not in p.message]
    found = [
        p for p in found if p.weight is Weight.WARNING and "seems to" not in p.message and "input" not in p.message
    ]
    assert len(found) == (message is not None), found
    if message is not None:
        assert message in found[0].message
        if after is not None:
            assert fixed(text, found[0]).endswith(after)


def test_a_float_takes_what_numbers_it_likes():
    _, problems = reviewed("//dice: n = 64; in x[n]: uniform(-0.5, 0.5)")
    assert not [p for p in problems if p.weight is not Weight.HINT]


def test_a_clause_that_says_what_is_found_anyway_is_unnecessary():
    lines = ("//dice: in x[n]; ref scale_cpu; tol 1e-5", "//dice: launch <<<cdiv(n, 64), 64>>>")
    text, problems = reviewed(*lines, more=RUN)
    hints = {text[p.start : p.end]: p for p in problems if p.weight is Weight.HINT}
    assert set(hints) == {"in x[n]", "ref scale_cpu"}, hints
    assert all(hint.unnecessary and hint.fixes for hint in hints.values())
    assert fixed(text, hints["in x[n]"]) == "//dice: ref scale_cpu; tol 1e-5"
    _, problems = reviewed("//dice: launch <<<cdiv(n, 256), 256>>>")
    assert not [p for p in problems if p.weight is Weight.HINT], "a block that is only a guess is worth saying"


def test_the_cases_of_a_spec_have_all_names_that_expressions_use():
    text = "#define B 4\n//dice: n = 8 | 9, m = 2; with N = 3; set k = n * B\ntemplate <int N>\n__global__ void f(int n, int k) {}\n"
    text = text.replace("m = 2", "n2 = n * m, m = 2")
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model)
    first, second = cases_of(spec, model.values)
    assert (first["n"], first["N"], first["k"], first["B"]) == (8, 3, 32, 4) and second["k"] == 36
