"""What is offered at each place of a `//dice:` comment, and that nothing is offered elsewhere."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp.server.directive_completion import Known, complete
from dice_lsp.source.directives import Directive, directive_comments, directive_ranges, parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

FILE = """#define TILE 16
void gold(const float* x, const int* index, float* y, int n, float a) {}
void other(int n) {}
%s
template <typename T, int W>
__global__ void k(const T* x, const int* index, float* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + index[i];
}
__global__ void j() {}
void run(float* x, int* index, float* y, int n) {
    k<float, 8><<<(n + 127) / 128, 128>>>(x, index, y, n, 2.0f);
    j<<<1, 1>>>();
}
"""


def offered(*lines, file=FILE, captures=()):
    """The completion at the mark ¦, and the text without it."""
    text = file % "\n".join(lines)
    at = text.index("¦")
    text = text.replace("¦", "")
    model = parse(text)
    comment = next(((a, b) for a, b in directive_comments(model) if a <= at <= b), None)
    if comment is None:
        return None, text
    kernel = next((k for k in model.kernels if comment in directive_ranges(text, k)), None)
    directive = Directive() if kernel is None else parse_directives(text, kernel)
    spec = None if kernel is None else launch_spec(text, kernel, model, directive=Directive())
    return complete(text, at, comment, Known(model, kernel, directive, spec, captures)), text


def labels(*lines, **how):
    found, _ = offered(*lines, **how)
    return [] if found is None else [item.label for item in found.items]


def taken(line, label, **how):
    """The directive's line after the item was put in the place of the whole word."""
    found, text = offered(line, **how)
    item = next(item for item in found.items if item.label == label)
    after = text[: found.start] + item.text + text[found.end :]
    return next(each for each in after.splitlines() if "dice:" in each)


WORDS = {"in", "out", "io", "tmp", "launch", "with", "set", "ref", "tol", "exact", "bytes", "flops", "peak", "hot", "cold",
         "skip", "run"}  # fmt: skip


@pytest.mark.parametrize(
    "line", ["//dice: ¦", "//dice:¦", "// dice: n = 3; ¦", "///dice: hot;¦", "//dice: n = 3 \\\n  ;¦"]
)
def test_a_clause_begins_with_a_word_or_with_all_that_was_found(line):
    found = set(labels(line))
    assert WORDS - {"hot", "cold"} <= found
    assert any(label.startswith("launch <<<") and "128>>>" in label for label in found), found
    assert any(label.startswith("in x[") for label in found)
    assert ("hot" in found) == ("hot" not in line)


def test_what_was_said_already_is_not_offered_again():
    found = labels("//dice: launch <<<1, 2>>>; in x[n]; ref gold; ¦", "//dice: skip; with T = float")
    assert not {"launch", "ref", "skip"} & set(found)
    assert not [label for label in found if re.match(r"launch|in x|ref gold|with T", label)]
    assert [label for label in found if label.startswith("with W = 8")]


def test_the_clause_that_is_being_written_hides_nothing():
    assert "launch" in labels("//dice: la¦unch <<<1, 2>>>")
    assert taken("//dice: la¦unch", "launch") == "//dice: launch "
    assert taken("//dice: n = 3;¦", "hot") == "//dice: n = 3; hot"
    assert taken("//dice:¦", "hot") == "//dice: hot"


@pytest.mark.parametrize(
    ("line", "wanted", "unwanted"),
    [
        ("//dice: in ¦", ["x", "index", "y"], ["n", "a", "launch"]),
        ("//dice: out ¦", ["y"], ["x", "index"]),
        ("//dice: io ¦", ["y"], ["x"]),
        ("//dice: in x[n], ¦", ["index"], ["x"]),
        ("//dice: in x¦[n], index[n]", ["x"], ["index"]),
        ("//dice: in x[¦", ["n", "W", "TILE", "cdiv", "min", "sizeof"], ["a", "T", "x"]),
        ("//dice: in x[n * ¦", ["n", "TILE"], []),
        ("//dice: in x[n]: ¦", ["normal", "uniform(a, b)", "int(a, b)"], ["n"]),
        ("//dice: in index[n]: ¦", ["int(a, b)", "perm(n)", "iota"], ["uniform(a, b)"]),
        ("//dice: in index[n]: int(¦", ["n"], ["normal"]),
        ("//dice: n = ¦", ["TILE", "cdiv"], ["n", "hot"]),
        ("//dice: n = 4 | ¦", ["TILE"], ["n"]),
        ("//dice: n = 4, ¦", [], ["n =", "hot"]),
        ("//dice: launch ¦", ["<<<cdiv(n, 128), 128>>>"], ["n"]),
        ("//dice: launch <<<¦", ["cdiv(n, 128)", "n", "cdiv"], []),
        ("//dice: launch <<<{n, ¦", ["n"], ["128"]),
        ("//dice: launch <<<1, ¦", ["128", "n"], ["<<<1, 128>>>"]),
        ("//dice: with ¦", ["T", "W"], ["n"]),
        ("//dice: with T = ¦", ["float", "double", "__half"], ["8", "TILE"]),
        ("//dice: with T = float, W = ¦", ["8", "TILE"], ["float"]),
        ("//dice: with T = float, ¦", ["W"], ["T"]),
        ("//dice: set ¦", ["a", "n"], ["x"]),
        ("//dice: n = 3; set ¦", ["a"], ["n"]),
        ("//dice: set n = ¦", ["TILE"], []),
        ("//dice: ref ¦", ["gold", "torch:", "py:", "accepted", "captured"], ["other", "run"]),
        ("//dice: ref torch: ¦", ["x", "index", "n", "a"], ["y"]),
        ("//dice: tol ¦", ["y", "1e-5", "exact", "ulp"], ["x"]),
        ("//dice: tol y ¦", ["1e-5", "exact"], ["y"]),
        ("//dice: peak ¦", ["mem", "f16tc"], ["hot"]),
        ("//dice: bytes ¦", ["n", "sizeof"], []),
        ("//dice: bytes n * sizeof(¦", ["float"], ["n"]),
    ],
)
def test_each_place_has_its_own_words(line, wanted, unwanted):
    found = labels(line)
    assert [each for each in wanted if each not in found] == [], found
    assert [each for each in unwanted if each in found] == []


@pytest.mark.parametrize(
    "line",
    [
        "//dice: n ¦", "//dice: n = 4 ¦", "//dice: in x[n] ¦", "//dice: in x ¦", "//dice: in x[n ¦", "//dice: hot ¦",
        "//dice: launch <<<1, 2>>> ¦", "//dice: with T ¦", "//dice: ref gold ¦", "//dice: tol 1e-5 ¦",
        "//dice: hot // no ¦", "//dice: peak mem ¦", '//dice: run "./¦"', "//dice: bytes 12 ¦", "//dice: in x[n]: zeros ¦",
        "//di¦ce: hot", "// dice ¦", "/* dice: ¦ */", "int dice; ¦", 'const char* s = "//dice: ¦";', "¦//dice: hot",
    ],
)  # fmt: skip
def test_nothing_is_offered_where_nothing_can_follow(line):
    assert labels(line) == []


@pytest.mark.parametrize(
    ("line", "label", "after"),
    [
        ("//dice: in ind¦", "index", "//dice: in index[n]"),
        ("//dice: in ind¦[n]", "index", "//dice: in index[n]"),
        ("//dice: in i¦ndex[4]", "index", "//dice: in index[4]"),
        ("//dice: with ¦ = float", "T", "//dice: with T = float"),
        ("//dice: launch <¦", "<<<cdiv(n, 128), 128>>>", "//dice: launch <<<cdiv(n, 128), 128>>>"),
        ("//dice: launch <<¦", "<<<cdiv(n, 128), 128>>>", "//dice: launch <<<cdiv(n, 128), 128>>>"),
        ("//dice: ref torch: x * ¦ + 1", "a", "//dice: ref torch: x * a + 1"),
        ("//dice: ref captured ¦", '"run.capture"', '//dice: ref captured "run.capture"'),
        ('//dice: ref captured "ru¦"', '"run.capture"', '//dice: ref captured "run.capture"'),
    ],
)
def test_what_is_chosen_takes_the_place_of_the_word_at_the_cursor(line, label, after):
    assert taken(line, label, captures=[("run.capture", "2 launches")]) == after


def test_what_was_found_is_readable_when_it_is_taken():
    found, text = offered("//dice: ¦")
    for item in found.items:
        if item.kind == "found":
            after = text[: found.start] + item.text + text[found.end :]
            kernel = next(kernel for kernel in parse(after).kernels if kernel.name == "k")
            assert not parse_directives(after, kernel).problems, item.text
            if item.snippet:
                assert "${" in item.snippet


def test_a_struct_is_set_field_by_field():
    file = "struct P { float* data; int n; };\n%s\n__global__ void k(P p, float s, float* y) {}\n"
    assert labels("//dice: set ¦", file=file) == ["p.", "s"]
    assert labels("//dice: set p.n = 4, ¦", file=file) == ["p.", "s"]


def test_a_comment_of_no_kernel_still_knows_the_words():
    assert set(labels("//dice: ¦", "int x;")) == WORDS


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("nxyTW=|,;[](){}<>:\"' 012intorefwsh\\/é😀")), max_size=40), st.data())
def test_any_directive_is_completed_without_an_exception(clauses, data):
    at = data.draw(st.integers(0, len(clauses)))
    found, text = offered(f"//dice: {clauses[:at]}¦{clauses[at:]}")
    if found is not None:
        assert 0 <= found.start <= text.index("//dice:") + len("//dice: ") + at <= found.end <= len(text)
        assert "\n" not in text[found.start : found.end]
