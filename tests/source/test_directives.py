"""The grammar of `//dice:` comments, and what is said about bad ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.records import Reference, Tolerance, Weight
from dice_lsp.source.directives import Directive, directive_ranges, parse_directives, stray_directives
from dice_lsp.source.kernels import parse

KERNEL = """void saxpy_cpu(int n, float a, const float* x, const float* y, float* z) {}
#define BLOCK 256
constexpr int TILE = BLOCK / 16;
%s
template <typename T, int N>
__global__ void saxpy(int n, float a, const T* x, const T* y, float* z, int* scratch, int k) {}
"""


def read(*lines, newline="\n"):
    text = (KERNEL % "\n".join(lines)).replace("\n", newline)
    (kernel,) = parse(text).kernels
    directive = parse_directives(text, kernel)
    return directive, [(text[p.start : p.end], p.message, p.fix) for p in directive.problems]


def good(*lines, **how):
    directive, problems = read(*lines, **how)
    assert problems == []
    return directive


def dims(directive):
    return {dim.name: dim.values for dim in directive.dims}


def buffers(directive):
    return [(b.role.value, b.name, b.extents, b.init) for b in directive.buffers]


def test_everything_at_once():
    directive = good(
        "//dice: n = 16M | 1000003, k = 3; in x[n], y[n, 2]: int(0, n); out z[n]; tmp scratch[k]",
        "// dice: launch <<<{cdiv(n, BLOCK), 2}, dim3(TILE, TILE), 4 * TILE, stream>>>; with T = float, N = 4; set a = 2.5f",
        '//dice: ref saxpy_cpu; tol 1e-5; tol z 1e-4 1e-6; bytes 12 * n; flops 2*n; peak mem; hot; skip; run "./a.out 3"',
    )
    assert dims(directive) == {"n": (16 << 20, 1000003), "k": (3, 3)}
    assert buffers(directive) == [
        ("in", "x", ("n",), "normal"),
        ("in", "y", ("n", "2"), "int(0,n)"),
        ("out", "z", ("n",), "normal"),
        ("tmp", "scratch", ("k",), "zeros"),
    ]
    assert (directive.grid, directive.block, directive.smem_bytes) == (
        ("cdiv(n, BLOCK)", "2", "1"),
        ("TILE", "TILE", "1"),
        "4 * TILE",
    )
    assert (directive.template, directive.scalars) == ({"T": "float", "N": "4"}, {"a": "2.5f"})
    assert directive.reference == Reference("function", "saxpy_cpu", "directive")
    assert directive.tolerances == (Tolerance("", rtol=1e-5), Tolerance("z", rtol=1e-4, atol=1e-6))
    assert (directive.bytes, directive.flops, directive.peak, directive.cache, directive.skip, directive.run) == (
        "12 * n",
        "2*n",
        "mem",
        "hot",
        True,
        "./a.out 3",
    )


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("n = 4 | 2, k = 3 | 5 | 7", {"n": (4, 2, 2), "k": (3, 5, 7)}),
        ("n = BLOCK * TILE", {"n": (4096,)}),
        ("n = 2 * k | k, k = 3 | 4", {"n": (6, 4), "k": (3, 4)}),
        ("n = (1 | 2) | 8", {"n": (3, 8)}),
        ("n=64K|1", {"n": (65536, 1)}),
        ("n = N * 2; with N = 8", {"n": (16,)}),
        ("n = 0", {"n": (0,)}),
    ],
)
def test_dims(clause, expected):
    assert dims(good(f"//dice: {clause}")) == expected


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("in x[n]: uniform(-1, 1.5)", ("in", "x", ("n",), "uniform(-1,1.5)")),
        ("io z[n]: zeros", ("io", "z", ("n",), "zeros")),
        ("in x[n]: perm(n)", ("in", "x", ("n",), "perm(n)")),
        ("in x[1]: iota", ("in", "x", ("1",), "iota")),
        ('in x[n]: file("a b.npy")', ("in", "x", ("n",), 'file("a b.npy")')),
        ("out z[n + 1, min(n, 3), 2]", ("out", "z", ("n + 1", "min(n, 3)", "2"), "normal")),
        ("in x[n]: sorted", ("in", "x", ("n",), "sorted")),
        ("in x[n] : ones", ("in", "x", ("n",), "ones")),
    ],
)
def test_buffers(clause, expected):
    assert buffers(good(f"//dice: {clause}")) == [expected]


@pytest.mark.parametrize(
    ("clause", "via", "text"),
    [
        ("ref saxpy_cpu", "function", "saxpy_cpu"),
        ("ref accepted", "kernel", ""),
        ("ref torch: a * x + y", "torch", "a * x + y"),
        ("ref torch: torch.softmax(x.view(n, -1), dim=1)[:, 0]", "torch", "torch.softmax(x.view(n, -1), dim=1)[:, 0]"),
        ("ref torch: torch.where(x > 0, x, 'no') # ;", "torch", "torch.where(x > 0, x, 'no') #"),
        ("ref py: refs/a.py:saxpy", "python", "refs/a.py:saxpy"),
        ("ref captured run.npz", "captured", "run.npz"),
    ],
)
def test_references(clause, via, text):
    reference = good(f"//dice: {clause}").reference
    assert (reference.via, reference.text) == (via, text)


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("exact", Tolerance("", exact=True)),
        ("tol exact", Tolerance("", exact=True)),
        ("tol z exact", Tolerance("z", exact=True)),
        ("tol ulp 2", Tolerance("", ulp=2)),
        ("tol z ulp 0", Tolerance("z", ulp=0)),
        ("tol 1e-3f 0", Tolerance("", rtol=1e-3, atol=0.0)),
        ("tol rtol=1e-3 atol=.5", Tolerance("", rtol=1e-3, atol=0.5)),
    ],
)
def test_tolerances(clause, expected):
    assert good(f"//dice: {clause}").tolerances == (expected,)


def test_empty_clauses_comments_and_crlf_are_fine():
    assert dims(good("//dice: ; n = 3 ;; // the length", newline="\r\n")) == {"n": (3,)}
    assert dims(good("///dice: n = 3", "// an ordinary comment", "//dice:", "//dice: k = 4")) == {"n": (3,), "k": (4,)}
    assert good("//dice: hot") == good("//dice:hot")


@pytest.mark.parametrize(
    ("clause", "place", "message", "fix"),
    [
        ("ot z[n]", "ot", "unknown word `ot`: did you mean `out`?", "out"),
        ("lunch <<<1, 2>>>", "lunch", "unknown word `lunch`", "launch"),
        ("in xx[n]", "xx", "unknown buffer `xx`: did you mean `x`?", "x"),
        ("in n[3]", "n", "unknown buffer `n`", None),
        ("in x", "x", "expected `[`", None),
        ("in x[n", "n", "expected `]`", None),
        ("in x[]", "]", "expected an expression", None),
        ("out x[n]", "x", "pointer to const", None),
        ("in x[n], x[n]", "x", "given twice", None),
        ("in x[n]: normale", "normale", "unknown initialiser", "normal"),
        ("in x[n]: int(3)", "int", "takes 2 arguments, not 1", None),
        ("in x[n]: zeros(3)", "zeros", "takes 0 arguments", None),
        ("in x[n]: uniform(a, b)", "a", "not a number", None),
        ("in x[m]", "m", "`m` has no known value", None),
        ("in x[nn]", "nn", "did you mean `n`?", "n"),
        ("n = ", "=", "expected an expression", None),
        ("n = m", "m", "`m` has no known value", None),
        ("n = 3, n = 4", "n", "given twice", None),
        ("n = 1 / 0", "1 / 0", "division by zero", None),
        ("n = 2.5", "2.5", "floating-point", None),
        ("n = -1", "-1", "negative", None),
        ("m = 3", "m", "nothing uses it", None),
        ("skp = 3", "skp", "did you mean `skip`?", "skip"),
        ("n = k, k = n", "k", "depends on itself", None),
        ("launch 1, 2", "1", "expected `<<<`", None),
        ("launch <<<1>>>", ">>>", "the launch has no block", None),
        ("launch <<<1, 2", "2", "expected `>>>`", None),
        ("launch <<<q, 2>>>", "q", "`q` has no known value", None),
        ("launch <<<{1, 2, 3, 4}, 2>>>", "}", "at most 3", None),
        ("with Q = 3", "Q", "unknown template parameter", None),
        ("set x = 3", "x", "unknown scalar parameter", None),
        ("set k = 2.5", "2.5", "integer is needed", None),
        ("ref saxpy", "saxpy", "did you mean `saxpy_cpu`?", "saxpy_cpu"),
        ("ref", "ref", "expected a function", None),
        ("ref py: a.py", "a.py", "py:FILE:FUNCTION", None),
        ("tol", "tol", "expected a tolerance", None),
        ("tol x 1e-3", "x", "unknown output", None),
        ("tol ulp x", "x", "whole number", None),
        ("peak fast", "fast", "unknown peak", None),
        ("hot cold", "cold", "unexpected `cold`", None),
        ("= 3", "=", "unknown word `=`", None),
        ("exactly", "exactly", "unknown word", "exact"),
    ],
)
def test_problems_have_a_place_and_a_fix(clause, place, message, fix):
    _, problems = read(f"//dice: {clause}")
    assert [p for p in problems if p[0] == place and message in p[1] and p[2] == fix], problems
    assert all(not p[1].endswith(".") for p in problems)


def test_one_bad_clause_does_not_hide_the_others():
    directive, problems = read("//dice: n = 3; ot z[n]; in x[n]; launch <<<; hot")
    assert dims(directive) == {"n": (3,)} and buffers(directive)[0][1] == "x" and directive.cache == "hot"
    assert len(problems) == 2


def ranges(text, name="k"):
    kernel = next(kernel for kernel in parse(text).kernels if kernel.name == name)
    return [text[a:b] for a, b in directive_ranges(text, kernel)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("//dice: a\n__global__ void k() {}", ["//dice: a"]),
        ("//dice: a\n// note\n//dice: b\n\n__global__ void k() {}", ["//dice: a", "//dice: b"]),
        (
            "//dice: a\ntemplate <int N>\n//dice: b\n__global__ void k(int n /* x */) //dice: c\n{ //dice: no\n}",
            ["//dice: a", "//dice: b", "//dice: c"],
        ),
        ("__global__ void k(); //dice: a\n//dice: b\n\nint x;\n__global__ void k() {}", ["//dice: a", "//dice: b"]),
        ("//dice: a\n__global__ void k();\n__global__ void k() {}", ["//dice: a"]),
        ("__global__ void k();\n//dice: j\n__global__ void j() {}\n__global__ void k() {}", []),
        ("__global__ void j() { } //dice: no\n__global__ void k() {}", []),
        ("//dice: no\nint x;\n__global__ void k() {}", []),
        ("int y; //dice: no\n__global__ void k() {}", []),
        ("/* dice: no */\n__global__ void k() {}", []),
        ('const char* s = "//dice: no";\n__global__ void k() {}', []),
        ("//dice: a\r\n__global__ void k() {}", ["//dice: a"]),
        ("    //dice: a\n    __global__ void k() {}", ["//dice: a"]),
    ],
)
def test_where_directives_are_read(text, expected):
    assert ranges(text) == expected


@given(st.text(alphabet=st.sampled_from(list("nxz=|,;[](){}<>:.\"' 012dicelaunhrftop\\/#é")), max_size=60))
def test_any_text_is_read_without_an_exception(clause):
    text = KERNEL % f"//dice: {clause}"
    for kernel in parse(text).kernels:
        for problem in parse_directives(text, kernel).problems:
            assert 0 <= problem.start <= problem.end <= len(text)


STRUCT = """struct P { float* data; int n; int size[2]; };
//dice: %s
__global__ void k(P p, float* y, int m) {}
"""


@pytest.mark.parametrize(
    "clause",
    [
        "set p.n = 4, p.size[1] = m",
        "set p.scale = 0.5f, p.data = nullptr",
        "in p.data[m]; out y[m]",
        "set p.size[0] = 2; io p.data[2, 3]: zeros; m = 3",
    ],
)
def test_fields_of_a_struct_are_named_with_dots(clause):
    text = STRUCT % clause
    (kernel,) = parse(text).kernels
    directive = parse_directives(text, kernel)
    assert not directive.problems
    names = [*directive.scalars, *(buffer.name for buffer in directive.buffers)]
    assert any(name.startswith("p.") for name in names)
    text = STRUCT % "set m.n = 4; in y.x[3]"
    problems = parse_directives(text, parse(text).kernels[0]).problems
    assert ["m.n" in p.message or "y.x" in p.message for p in problems] == [True, True]


def fixed(clauses, title):
    """The text of the one comment after the fix with this title."""
    text = KERNEL % f"//dice: {clauses}"
    (kernel,) = parse(text).kernels
    directive = parse_directives(text, kernel)
    problems = (*directive.problems, *directive.remarks)
    (fix,) = {fix.title: fix for problem in problems for fix in problem.fixes if title in fix.title}.values()
    for start, end, new in sorted(fix.edits, reverse=True):
        text = text[:start] + new + text[end:]
    found = [line for line in text.splitlines() if "dice:" in line]
    again = parse_directives(text, parse(text).kernels[0])
    assert not [p for p in again.problems if "twice" in p.message or "has no block" in p.message]
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("clauses", "title", "expected"),
    [
        ("hot; n = 3; cold", "remove", "//dice: hot; n = 3"),
        ("hot; cold; n = 3", "remove", "//dice: hot; n = 3"),
        ("launch <<<1, 2>>>;launch <<<3, 4>>> // why", "remove", "//dice: launch <<<1, 2>>> // why"),
        ("tol 1e-3; tol z 1e-4; tol z exact", "remove", "//dice: tol 1e-3; tol z 1e-4"),
        ("skip; skip", "remove", "//dice: skip"),
        ("launch <<<n>>>; n = 3", "block of 256", "//dice: launch <<<n, 256>>>; n = 3"),
        ("launch <<<n, 2; n = 3", "add `>>>`", "//dice: launch <<<n, 2>>>; n = 3"),
        ("launch; n = 3", "a launch to complete", "//dice: launch <<<cdiv(n, 256), 256>>>; n = 3"),
        ("n = 4 | 5, k = 1 | 2 | 3 | 4", "write 5 again", "//dice: n = 4 | 5 | 5 | 5, k = 1 | 2 | 3 | 4"),
    ],
)
def test_fixes_that_reach_beyond_their_place(clauses, title, expected):
    assert fixed(clauses, title) == expected


def test_a_clause_that_was_all_of_its_comment_goes_with_the_line():
    text = KERNEL % "//dice: hot\n//dice: cold"
    (kernel,) = parse(text).kernels
    (problem,) = parse_directives(text, kernel).problems
    ((start, end, new),) = problem.fixes[0].edits
    assert text[:start] + new + text[end:] == KERNEL % "//dice: hot"


@pytest.mark.parametrize(
    ("text", "reason", "after"),
    [
        ("//dice: n = 1\nint x;\n__global__ void k(int n) {}\n", "no kernel follows", "int x;\n__global__ void k(int n) {}\n"),
        ("//dice: hot\nvoid f() {}\n__global__ void k() {}", "f is no kernel", "void f() {}\n__global__ void k() {}"),
        (
            "  __global__ void k() {\n    //dice: hot\n  }\n",
            "inside of k",
            "  //dice: hot\n  __global__ void k() {\n  }\n",
        ),
        ("__global__ void k() {}\n//dice: hot", "no kernel follows", "__global__ void k() {}\n"),
        ("__global__ void k() {} //dice: hot\r\n", "no kernel follows", "__global__ void k() {}\r\n"),
        ("//dice: hot\n__global__ void k() {}\n", None, None),
    ],
)  # fmt: skip
def test_a_directive_above_no_kernel_is_a_warning(text, reason, after):
    model = parse(text)
    used = {comment for kernel in model.kernels for comment in directive_ranges(text, kernel)}
    problems = stray_directives(model, used)
    if reason is None:
        assert not problems
        return
    (problem,) = problems
    assert reason in problem.message and problem.weight is Weight.WARNING
    for start, end, new in sorted(problem.fixes[0].edits, reverse=True):
        text = text[:start] + new + text[end:]
    assert text == after


@pytest.mark.parametrize(
    ("clause", "run"),
    [
        ('run "./a.out 3"', "./a.out 3"),
        (r'run "sh -c \"cd x && ./a\""', 'sh -c "cd x && ./a"'),
        (r'run "a\\b"', r"a\b"),
        ("run ./a.out 3", "./a.out 3"),
    ],
)
def test_a_command_may_have_quotes(clause, run):
    assert good(f"//dice: {clause}").run == run


def test_a_clause_can_be_passed_over():
    text = KERNEL % "//dice: n = 3; hot\n//dice: skip; set k = 2"
    (kernel,) = parse(text).kernels
    whole = parse_directives(text, kernel)
    assert [clause.word for clause in whole.clauses] == ["", "hot", "skip", "set"]
    for clause in whole.clauses:
        less = parse_directives(text, kernel, without=[clause.start])
        assert len(less.clauses) == 3 and less != whole
    assert parse_directives(text, kernel, without=[c.start for c in whole.clauses]) == Directive()
