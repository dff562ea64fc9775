"""What we write above a kernel gives, read again, the launch that it was written from."""

import re
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp.records import BufferSpec, Confidence, Dim, LaunchSpec, Origin, Reference, Role, Tolerance
from dice_lsp.server.directive_line import (
    WIDTH,
    directive_line,
    directive_lines,
    directive_snippet,
    guesses,
    number_text,
)
from dice_lsp.source.directive_review import cases_of
from dice_lsp.source.directives import Directive, insertion_point, parse_directives, whole_comment
from dice_lsp.source.expressions import evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for folder in ("honest", "data") for path in (ROOT / "tests" / folder).rglob("*.cu"))
FILES = [path for number, path in enumerate(FILES) if path.parent.name != "frozen" or number % 5 == 0]
"""Of the generated kernels, which are much alike, every fifth."""


def bare(spec):
    """A spec without where its parts come from."""
    dims = tuple(evolve(dim, origin=Origin.DIRECTIVE) for dim in spec.dims)
    buffers = {buffer.name: evolve(buffer, origin=Origin.DIRECTIVE) for buffer in spec.buffers}
    reference = evolve(spec.reference, origin=Origin.DIRECTIVE) if spec.reference else None
    return (
        {dim.name: dim.values for dim in dims}, buffers, dict(spec.scalars), spec.grid, spec.block, spec.smem_bytes,
        dict(spec.template), reference, spec.tolerances, spec.bytes, spec.flops, spec.peak, spec.cache, spec.skip,
    )  # fmt: skip


def with_line(text, kernel, lines):
    at, lead, indent = insertion_point(text, kernel)
    return text[:at] + lead + "".join(f"{indent}{line}\n" for line in lines) + text[at:]


def without_directives(text, kernel):
    for start, end in reversed(parse_directives(text, kernel).comments):
        begin, stop, _ = whole_comment(text, start, end)
        text = text[:begin] + text[stop:]
    return text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_written_for_a_kernel_of_ours_gives_the_same_launch(path):
    text = path.read_text()
    for name in [kernel.id for kernel in parse(text).kernels]:
        model = parse(text)
        kernel = next(kernel for kernel in model.kernels if kernel.id == name)
        if kernel.id != kernel.name:
            continue  # a line moves the kernels that are told apart by their lines
        spec = launch_spec(text, kernel, model)
        plain = without_directives(text, kernel)
        above = next(kernel for kernel in parse(plain).kernels if kernel.id == name)
        for lines in ([directive_line(above, spec)], directive_lines(above, spec, Directive())):
            written = with_line(plain, above, lines)
            again = next(kernel for kernel in parse(written).kernels if kernel.id == name)
            directive = parse_directives(written, again)
            assert not directive.problems, (lines, directive.problems)
            if not spec.unknown:
                assert bare(launch_spec(written, again, parse(written))) == bare(spec), lines
            assert not directive_lines(again, spec, directive), "everything is said"


KERNEL = "template <typename T, int N>\n__global__ void k(const T* x, float* y, int* z, int n, int m, float a) {}\n"
HOST = "void k_cpu(const float* x, float* y, int* z, int n, int m, float a) {}\n"
sizes = st.recursive(
    st.sampled_from(["n", "m", "N", "32", "1"]),
    lambda inner: st.builds(
        lambda form, a, b: form.format(a, b),
        st.sampled_from(["({0} + {1})", "cdiv({0}, {1} + 1)", "min({0}, {1})", "{0} * {1}", "({0} > {1} ? 3 : 7)",
                         "({0} >> 1)"]),
        inner, inner,
    ),
    max_leaves=4,
)  # fmt: skip
triples = st.tuples(sizes, sizes | st.just("1"), sizes | st.just("1"))
inits = st.sampled_from(["normal", "zeros", "ones", "iota", "sorted", "uniform(-1,2.5)", "int(0,n)", "perm(n)",
                         'file("a b.npy")'])  # fmt: skip
tolerances = st.sampled_from([Tolerance(""), Tolerance("", exact=True), Tolerance("y", ulp=3), Tolerance("", 1e-5),
                              Tolerance("y", 1e-5, 3.3e-07)])  # fmt: skip
references = st.sampled_from(
    [None, Reference("function", "k_cpu", Origin.DIRECTIVE), Reference("kernel", "", Origin.DIRECTIVE),
     Reference("torch", "torch.where(x > 0, x, 0)[:, 1]", Origin.DIRECTIVE),
     Reference("python", "refs/a.py:f", Origin.DIRECTIVE), Reference("captured", "", Origin.DIRECTIVE),
     Reference("captured", "run 1.capture", Origin.DIRECTIVE)]
)  # fmt: skip


@st.composite
def specs(draw):
    count = draw(st.integers(1, 4))
    values = st.lists(
        st.integers(1, 1 << 33) | st.integers(0, 12).map(lambda e: 1 << e), min_size=count, max_size=count
    )
    given_scalars = draw(st.sampled_from([{}, {"a": "2.5f"}, {"m": "n * 2", "a": "-1.5"}]))
    dims = [Dim(name, tuple(draw(values)), Origin.DIRECTIVE) for name in ("n", "m") if name not in given_scalars]
    roles = {"x": st.just(Role.IN), "y": st.sampled_from(list(Role)), "z": st.sampled_from(list(Role))}
    buffers = [
        BufferSpec(
            name, draw(role), tuple(draw(st.lists(sizes, min_size=1, max_size=3))), draw(inits), Origin.DIRECTIVE
        )
        for name, role in roles.items()
    ]
    tolerance = draw(tolerances)
    return LaunchSpec(
        "k", tuple(dims), tuple(buffers), given_scalars, draw(triples), draw(triples),
        smem_bytes=draw(st.just("0") | sizes), template={"T": draw(st.sampled_from(["float", "unsigned char"])), "N": "16"},
        reference=draw(references), tolerances=() if tolerance == Tolerance("") else (tolerance,),
        bytes=draw(st.none() | sizes), flops=draw(st.none() | sizes), peak=draw(st.sampled_from([None, "f16tc"])),
        cache=draw(st.sampled_from([None, "hot", "cold"])), skip=draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(specs(), st.sampled_from([20, WIDTH, 400]))
def test_any_launch_survives_being_written_and_read(spec, width):
    # A function that could be the reference would be found without the clause.
    text = KERNEL if spec.reference is None else HOST + KERNEL
    (kernel,) = parse(text).kernels
    lines = directive_lines(kernel, spec, Directive(), width)
    written = with_line(text, kernel, lines)
    (again,) = parse(written).kernels
    directive = parse_directives(written, again)
    assert not directive.problems, (lines, directive.problems)
    assert bare(launch_spec(written, again, parse(written))) == bare(spec), lines
    assert all(len(line) <= width for line in lines if ", " not in line and ";" not in line and width > 100)
    one = with_line(text, kernel, [directive_line(kernel, spec)])
    assert bare(launch_spec(one, parse(one).kernels[0], parse(one))) == bare(spec)


def test_what_is_not_known_is_a_guess_and_says_so():
    text = "template <typename T, int W>\n__global__ void k(const T* x, float* y, int rows, int cols) {}\n"
    (kernel,) = parse(text).kernels
    lines = directive_lines(kernel, None, Directive())
    assert lines == (
        "//dice: rows = 1K | 1000, cols = 1K | 777; in x[rows * cols]; io y[rows * cols]  // guessed: rows, cols, x, y",
        "//dice: launch <<<cdiv(rows * cols, 256), 256>>>; with T = float, W = 32  // guessed: grid, block, T, W",
    )
    assert set(guesses(kernel, None, Directive())) == {"rows", "cols", "x", "y", "grid", "block", "T", "W"}
    written = with_line(text, kernel, lines)
    found = launch_spec(written, parse(written).kernels[0], parse(written))
    assert found.launchable


def test_what_a_spec_only_guesses_is_marked_too():
    text = "__global__ void k(float* y, int n, int m) {}\n"
    spec = LaunchSpec(
        "k", (Dim("n", (64,), Origin.DEFAULT), Dim("m", (3,), Origin.LAUNCH_SITE)),
        (BufferSpec("y", Role.OUT, ("n",), "normal", Origin.INFERRED),), grid=("n", "1", "1"), block=("32", "1", "1"),
        confidence={"dims.n": Confidence.GUESS, "grid": Confidence.GUESS, "block": Confidence.LIKELY},
    )  # fmt: skip
    (kernel,) = parse(text).kernels
    assert directive_lines(kernel, spec, Directive()) == (
        "//dice: n = 64, m = 3; out y[n]; launch <<<n, 32>>>  // guessed: n, grid",
    )
    (snippet,) = directive_snippet(kernel, spec, Directive())
    assert snippet == "//dice: n = ${1:64}, m = 3; out y[n]; launch <<<${2:n}, 32>>>"


def test_only_what_is_missing_is_written_and_a_snippet_asks_for_what_is_guessed():
    text = "//dice: n = 4 | 5; in x[n]\n__global__ void k(const float* x, float* y, int n) {}\n"
    (kernel,) = parse(text).kernels
    directive = parse_directives(text, kernel)
    spec = LaunchSpec(
        "k", directive.dims, (*directive.buffers, BufferSpec("y", Role.OUT, ("n",), "normal", Origin.INFERRED))
    )
    assert directive_lines(kernel, spec, directive) == (
        "//dice: out y[n]; launch <<<cdiv(n, 256), 256>>>  // guessed: grid, block",
    )
    assert directive_snippet(kernel, spec, directive) == ("//dice: out y[n]; launch <<<${1:cdiv(n, 256)}, ${2:256}>>>",)
    assert directive_snippet(kernel, evolve(spec, template={}), Directive()) == (
        "//dice: n = 4 | 5; in x[n]; out y[n]; launch <<<${1:cdiv(n, 256)}, ${2:256}>>>",
    )


def test_a_snippet_stands_for_the_guess_that_it_holds():
    for text in (KERNEL, "__global__ void k(const float* x, int* y) {}\n"):
        (kernel,) = parse(text).kernels
        spec = LaunchSpec(
            "k", block=("16", "16", "1"), reference=Reference("torch", r"x ** 2 # ${1:\}", Origin.DIRECTIVE)
        )
        plain = directive_lines(kernel, spec, Directive())
        for line, snippet in zip(plain, directive_snippet(kernel, spec, Directive()), strict=True):
            taken = re.sub(r"(?<!\\)\$\{\d+:((?:[^\\}]|\\.)*)\}", r"\1", snippet)
            assert re.sub(r"\\([\\$}])", r"\1", taken) == line.partition("  // guessed")[0]


def test_a_guess_is_a_launch_that_a_gpu_takes():
    names = "abcdefgh"
    text = f"__global__ void k(float* y, {', '.join(f'int {name}' for name in names)}) {{ y[0] = 1; }}\n"
    (kernel,) = parse(text).kernels
    written = with_line(text, kernel, directive_lines(kernel, None, Directive()))
    found = launch_spec(written, parse(written).kernels[0], parse(written))
    assert found.grid is not None and len(found.dims) == len(names)
    for names in cases_of(found, {}):
        assert 1 <= evaluate(found.grid[0], names) < 1 << 31
    shared = LaunchSpec("k", unknown=("the size of the dynamic shared memory is not known",))
    assert any(
        "256, 48K>>>" in line and "shared memory" in line for line in directive_lines(kernel, shared, Directive())
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (1024, "1K"), (1000, "1000"), (3 << 20, "3M"), (1 << 30, "1G"), (1 << 40, "1024G")],
)
def test_numbers_are_short_where_that_is_exact(value, text):
    assert number_text(value) == text
