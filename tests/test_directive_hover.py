"""What a hover says about a clause, and about each part of a launch."""

import attrs
import pytest

from dice_lsp.hint import launch_table, origin_words
from dice_lsp.records import BufferSpec, Confidence, Dim, LaunchCase, LaunchSpec, Origin, Reference, Role
from dice_lsp.server.directive_hover import bytes_text, clause_at, directive_text
from dice_lsp.source.directives import Directive, parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

FILE = """#define TILE 16
void gold(const float* x, float* y, int n, float a) { for (int i = 0; i < n; i++) y[i] = a * x[i]; }
//dice: n = 1M | 33, m = 4; in x[n]: uniform(0, 1), index[n, 2]; launch <<<cdiv(n, TILE * 8), 128, 4 * TILE>>>
//dice: with T = float; set a = 2.5f; ref gold; tol y 1e-4; bytes 8 * n; hot
template <typename T>
__global__ void k(const T* x, const int* index, float* y, int n, int m, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""


def hovered(words, text=FILE):
    model = parse(text)
    kernel = model.kernels[0]
    directive = parse_directives(text, kernel)
    at = text.index(words, text.index("//dice")) + 1
    clause, (start, end) = clause_at(directive, at)
    given = launch_spec(text, kernel, model)
    bare = launch_spec(text, kernel, model, directive=Directive())
    return directive_text(kernel, clause, at, given, bare, model.values), text[start:end]


@pytest.mark.parametrize(
    ("words", "clause", "said"),
    [
        (
            "n = 1M",
            "n = 1M | 33, m = 4",
            [
                "A size. The first value is the case that is timed",
                "Without the clause: `n = ",
                "docs/directives.md, Sizes",
            ],
        ),
        (
            "x[n]",
            "in x[n]: uniform(0, 1), index[n, 2]",
            [
                "only reads",
                "| n = 1048576, m = 4, timed | 1048576 x float, 4 MiB",
                "| n = 33, m = 4",
                "132 B",
                "begins as `uniform(0,1)`: floating-point numbers",
                "`in x[n]`, inferred (likely)",
            ],
        ),
        ("index[n, 2]", "in x[n]: uniform(0, 1), index[n, 2]", ["2097152 x int, 8 MiB", "66 x int"]),
        (
            "launch",
            "launch <<<cdiv(n, TILE * 8), 128, 4 * TILE>>>",
            ["| 8192 ", "1048576", "| 1 ", "| 64 ", "threads", "Without the clause: grid `cdiv(n, 256)`"],
        ),
        ("with T", "with T = float", ["Template arguments", "`T` is not known"]),
        ("set a", "set a = 2.5f", ["2.5f"]),
        ("ref gold", "ref gold", ["What the outputs are compared with", "Without the clause: there is no reference"]),
        ("bytes", "bytes 8 * n", ["8388608", "264", "docs/directives.md, Timing"]),
        ("tol y", "tol y 1e-4", ["How far an output may be"]),
        ("hot", "hot", ["in the cache only"]),
    ],
)
def test_a_clause_is_explained(words, clause, said):
    text, place = hovered(words)
    assert place == clause
    for each in said:
        assert each in text, (each, text)


def test_beside_the_clauses_stands_the_whole_launch():
    text, place = hovered("dice: n")
    assert place.startswith("//dice: n = 1M") and "how `k` is launched" in text and "| grid" in text


def test_a_value_that_is_not_known_says_so():
    text, _ = hovered("x[q]", FILE.replace("in x[n]", "in x[q]"))
    assert "not known" in text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1000, "1000 B"), (4 << 20, "4 MiB"), (3 << 29, "1.5 GiB")])
def test_bytes_are_readable(count, text):
    assert bytes_text(count) == text


SPEC = LaunchSpec(
    "k",
    (Dim("n", (1 << 20, 33), Origin.LAUNCH_SITE),),
    (BufferSpec("x", Role.IN, ("n",), "normal", Origin.INFERRED),),
    scalars={"a": "2.0f"},
    grid=("cdiv(n, 256)", "1", "1"),
    block=("256", "1", "1"),
    smem_bytes="1024",
    template={"T": "float"},
    reference=Reference("function", "gold", Origin.INFERRED),
    origins={
        "grid": Origin.LAUNCH_SITE,
        "block": Origin.DEFAULT,
        "a": Origin.LAUNCH_SITE,
        "template": Origin.DIRECTIVE,
    },
    confidence={"buffers.x": Confidence.LIKELY, "dims.n": Confidence.LIKELY},
    label="launch at line 210",
    cases=(LaunchCase("launch at line 220", ("8", "2", "1"), ("64", "1", "1"), dims={"n": 7}),),
)


def test_each_part_of_a_launch_says_where_it_is_from_and_how_sure_it_is():
    table = launch_table(SPEC)
    rows = {row.split("|")[1].strip(): row for row in table.splitlines()}
    assert rows["grid"].endswith("| launch at line 210 (certain) |")
    assert rows["block"].endswith("| default (guess) |")
    assert rows["n"].endswith("| launch at line 210 (likely) |")
    assert rows["in x"].endswith("| inferred (likely) |") and rows["a"].endswith("(certain) |")
    assert rows["template"].endswith("| directive |") and "1024 B" in rows["shared memory"]
    assert "<<<8 x 2, 64>>>, n = 7" in rows["also launched"] and "launch at line 220" in rows["also launched"]
    many = attrs.evolve(SPEC, cases=SPEC.cases * 12)
    assert "4 more" in launch_table(many)
    assert origin_words(SPEC, "grid", Origin.CAPTURED) == "recorded run (certain)"


def test_what_is_not_known_has_a_reason_and_a_next_step():
    spec = attrs.evolve(
        SPEC,
        unknown=(
            "the grid is not known: nothing bounds it; write `launch <<<grid, block>>>` in a //dice: line",
            "the template argument T is not known: write `with T = float` in a //dice: line",
            "p is a pointer to pointers, which a launch from here cannot fill",
        ),
    )
    lines = launch_table(spec).splitlines()
    assert lines[-5:] == [
        "- the grid is not known: nothing bounds it",
        "  - next: write `launch <<<grid, block>>>` in a //dice: line",
        "- the template argument T is not known",
        "  - next: write `with T = float` in a //dice: line",
        "- p is a pointer to pointers, which a launch from here cannot fill",
    ]
