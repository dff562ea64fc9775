"""The mutators do what their names say, mutants are drawn evenly, and some of every kind are caught by the real judge."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest
import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from dice_lsp.source.syntax import walk
from tests.hostile_table import HONEST
from tests.mutants import EQUIVALENT, KINDS, Laboratory, Mutant, Outcome, drawn, equivalents, main, mutants_of, shares

KERNEL = """
float total_cpu(const float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }

__global__ void total(const float* x, float* y, int* ticket, int n) {
    __shared__ float s[64];
    float sum = 0.0f;
    int t = threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) sum += 2 * x[i];
    for (int k = 16; k > 0; k >>= 1) sum += __shfl_down_sync(0xffffffff, sum, k);
    s[t] = fmaxf(sum, -INFINITY);
    __syncthreads();
    if (t < 1) atomicAdd(&y[0], s[t]);
    __threadfence();
    bool last = atomicAdd(ticket, 1) == 3;
    if (t >= n) return;
    y[1] = last ? 1.0f : 0.0f;
    float top = sum > 0.0f ? sum : 0.0f;
}
"""


def changed(kind: str) -> list[tuple[str, str]]:
    """What one kind of mutation makes of the kernel's lines: the part that goes and the part that comes."""
    data = KERNEL.encode()
    return [(data[m.start : m.end].decode(), m.new) for m in mutants_of("total", KERNEL) if m.kind == kind]


@pytest.mark.parametrize(
    "kind, some",
    [
        ("drop_barrier", [("__syncthreads();", ";")]),
        ("drop_fence", [("__threadfence();", ";")]),
        ("drop_atomic", [
            ("atomicAdd(&y[0], s[t])", "y[0] = y[0] + (s[t])"),
            ("atomicAdd(ticket, 1)", "[&] { auto old = *(ticket); *(ticket) = *(ticket) + (1); return old; }()"),
        ]),
        ("drop_guard", [("(t < 1)", "(true)"), ("(t >= n)", "(false)"), ("last", "true")]),
        ("drop_term", [("2 * x[i]", "2"), ("2 * x[i]", "x[i]")]),
        ("drop_assignment", [("s[t] = fmaxf(sum, -INFINITY);", ";"), ("sum += 2 * x[i];", ";")]),
        ("shift_index", [("i", "(i) + 1"), ("i", "(i) - 1"), ("t", "(t) + 1"), ("0", "(0) - 1")]),
        ("swap_operator", [("+=", "="), ("*", "+"), ("<", "<="), (">", ">="), ("==", "!=")]),
        ("swap_axes", [("x", "y"), ("x", "z")]),
        ("swap_min_max", [("fmaxf", "fminf"), ("sum > 0.0f ? sum : 0.0f", "sum > 0.0f ? 0.0f : sum")]),
        ("change_bound", [("n", "(n - 1)"), ("n", "(n + 1)"), ("1", "(1 - 1)")]),
        ("change_shuffle", [
            ("0xffffffff", "0x0000ffff"), ("k", "(k) + 1"), ("k", "(k) / 2"), ("__shfl_down_sync", "__shfl_up_sync"),
        ]),
        ("change_initial", [("0.0f", "1.0f"), ("16", "0")]),
        ("change_stride", [("blockDim.x", "(blockDim.x) * 2"), ("1", "1 + 1")]),
    ],
)  # fmt: skip
def test_each_kind_changes_what_its_name_says(kind: str, some: list[tuple[str, str]]) -> None:
    found = changed(kind)
    assert set(some) <= set(found), found
    if kind.startswith("drop_barrier") or kind in ("drop_fence", "drop_atomic"):
        assert Counter(some) == Counter(found)


def test_every_kind_has_a_test_of_its_own() -> None:
    (mark,) = test_each_kind_changes_what_its_name_says.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == set(KINDS)


def errors(text: str) -> int:
    root: Node = Parser(Language(tree_sitter_cuda.language())).parse(text.encode()).root_node
    return sum(node.is_error or node.is_missing for node in walk(root))


@pytest.mark.parametrize("path", HONEST[::7], ids=lambda path: path.stem)
def test_a_mutant_differs_in_one_place_and_still_parses(path: Path) -> None:
    text = path.read_text()
    lines, sound = text.split("\n"), errors(text)
    for mutant in mutants_of(path.stem, text):
        new = mutant.apply(text)
        assert new != text and errors(new) <= sound, mutant
        differing = [a != b for a, b in zip(lines, new.split("\n"), strict=True)]
        assert sum(differing) == 1 or "\n" in text.encode()[mutant.start : mutant.end].decode(), mutant
        if sum(differing) == 1:
            assert differing.index(True) == mutant.line(text) - 1


def test_only_device_code_is_changed() -> None:
    before = KERNEL.index("__global__")
    assert mutants_of("total", KERNEL) and all(mutant.start > before for mutant in mutants_of("total", KERNEL))


def test_mutants_are_drawn_evenly_and_in_an_order_of_the_seed() -> None:
    texts = {path.stem: path.read_text() for path in HONEST[:6]}
    order = drawn(texts, 3)
    cells = {(mutant.kernel, mutant.kind) for mutant in order}
    assert {(mutant.kernel, mutant.kind) for mutant in order[: len(cells)]} == cells
    assert len({mutant.id for mutant in order}) == len(order)
    assert drawn(texts, 3) == order and drawn(texts, 4) != order and set(drawn(texts, 4)) == set(order)


def outcomes(*fates: str) -> list[Outcome]:
    return [Outcome(Mutant("total", "drop_term", at, at + 1, ";"), fate, "", 0.1) for at, fate in enumerate(fates)]


def test_shares_leave_out_what_is_equivalent() -> None:
    found = outcomes("caught", "caught", "caught", "survived", "survived", "unverified")
    table = shares(found, lambda mutant: mutant.kind, {found[3].mutant.id: "the same"})
    assert table[1:] == [
        ("drop_term", "3", "1", "1", "1", "60.0 %"),
        ("all", "3", "1", "1", "1", "60.0 %"),
    ]


def test_every_known_equivalent_is_a_mutant() -> None:
    texts = {path.stem: path.read_text() for path in HONEST}
    everything = [mutant for kernel, text in texts.items() for mutant in mutants_of(kernel, text)]
    for entry in tomllib.loads(EQUIVALENT.read_text())["mutant"]:
        (one,) = [
            mutant
            for mutant in everything
            if mutant.kernel == entry["kernel"]
            and mutant.lines(texts[mutant.kernel]) == (entry["before"], entry["after"])
            and entry.get("line", mutant.line(texts[mutant.kernel])) == mutant.line(texts[mutant.kernel])
        ]
        assert equivalents([one], texts) == {one.id: entry["why"]} and entry["why"]


CAUGHT = [
    # kernel, kind, line, what comes, how the verdict begins
    ("scan_block", "drop_barrier", 8, ";", "unsafe race"),
    ("histogram_shared", "drop_barrier", 10, ";", "unsafe race"),
    ("sum_of_the_last_block", "drop_fence", 23, ";", "unsafe race"),
    ("sum_under_a_lock", "drop_fence", 18, ";", "unsafe race"),
    ("sum_under_a_lock", "drop_atomic", 12, "s = s + (x[i])", "unsafe race"),
    ("histogram_shared", "drop_atomic", 11, "h[threadIdx.x] = h[threadIdx.x] + (bins[threadIdx.x])", "unsafe race"),
    ("stencil_1d", "drop_guard", 10, "(true)", "unsafe out_of_bounds"),
    ("scan_block", "drop_guard", 7, "true", "unsafe out_of_bounds|wrong"),
    ("row_sum_tree", "drop_term", 7, "c", "wrong"),
    ("matmul_tiled", "drop_term", 12, "a[threadIdx.y][k]", "wrong"),
    ("conv1d", "drop_assignment", 8, ";", "unsafe never_launched|unsafe unwritten_output"),
    ("stencil_1d", "shift_index", 10, "(threadIdx.x + 1) - 1", "wrong"),
    ("transpose_tiled", "shift_index", 10, "(threadIdx.x) - 1", "unsafe shared_memory"),
    ("layernorm_warp", "swap_operator", 6, "+", "unsafe|wrong"),
    ("relu_fmaxf", "swap_operator", 6, "<=", "unsafe out_of_bounds"),
    ("quantize", "swap_axes", 13, "z", "unsafe|wrong"),
    ("relu_fmaxf", "swap_min_max", 6, "fminf", "wrong"),
    ("scan_block", "change_bound", 15, "(d - 1)", "unsafe unwritten_output|wrong"),
    ("matmul_tiled", "change_bound", 10, "(K + 1)", "unsafe out_of_bounds"),
    ("layernorm_warp", "change_shuffle", 10, "(s) / 2", "wrong"),
    ("layernorm_warp", "change_shuffle", 10, "0x0000ffff", "unsafe fault"),
    ("conv1d", "change_initial", 6, "1.0f", "wrong"),
    ("matmul_tiled", "change_initial", 8, "1", "wrong|unsafe"),
    ("scan_block", "change_stride", 9, "2 * 2", "wrong"),
    ("layernorm_warp", "change_stride", 18, "(32 + 1)", "unsafe unwritten_output"),
]
"""Kernels that stand here keep their lines."""


@pytest.fixture(scope="module")
def laboratory() -> object:
    opened = Laboratory("host")
    yield opened
    opened.close()


@pytest.mark.parametrize("kernel, kind, line, new, begins", CAUGHT, ids=lambda value: str(value)[:24])
def test_a_mutant_is_caught(laboratory: Laboratory, kernel: str, kind: str, line: int, new: str, begins: str) -> None:
    text = laboratory.original(kernel)[0]
    wanted = [m for m in mutants_of(kernel, text) if (m.kind, m.line(text), m.new) == (kind, line, new)]
    assert wanted, f"{kernel} has changed"
    outcome = laboratory.judge(wanted[0])
    assert outcome.fate == "caught" and outcome.words.startswith(tuple(begins.split("|"))), outcome


def test_what_compiles_to_the_same_code_or_not_at_all_is_no_mutant(laboratory: Laboratory) -> None:
    text = laboratory.original("relu_fmaxf")[0]
    at = text.encode().index(b"fmaxf(x[i], 0.0f)")
    same = Mutant("relu_fmaxf", "drop_term", at, at + len(b"fmaxf(x[i], 0.0f)"), "fmaxf((x[i]), 0.0f)")
    broken = Mutant("relu_fmaxf", "drop_term", at, at + len(b"fmaxf"), "nothing_of_that_name")
    assert laboratory.judge(same).fate == "same"
    assert laboratory.judge(broken).fate == "broken"


def test_the_command_goes_on_from_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    few = ["--count", "2", "--jobs", "1", "--log", str(log), "relu_fmaxf"]
    assert main(few) == 0
    first = capsys.readouterr().out
    assert "2 of 2 mutants that are not equivalent are caught, 100.0 %" in first
    done = log.read_text()
    assert len(done.splitlines()) >= 2
    assert main(few) == 0
    assert log.read_text() == done and "2 of 2 mutants" in capsys.readouterr().out
