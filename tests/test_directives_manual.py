"""The manual of directives says what the code does: its tables are made from it, its examples are read by it."""

import re
from pathlib import Path

import pytest

from dice_lsp.source.directive_words import INITS, MANUAL, SIZES, WORDS, manual_table
from dice_lsp.source.directives import CLAUSES, PEAKS, parse_directives
from dice_lsp.source.directives import INITS as READ_INITS
from dice_lsp.source.kernels import parse

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / MANUAL).read_text()
EXAMPLES = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
KERNEL = """void saxpy_cpu(int n, const float* x, float* y) {}
//dice: %s
template <typename T, int TILE>
__global__ void k(const float* x, const int* index, const int* order, const float* keys, const float* mask, float* y,
                  int* histogram, float* sum, int* counter, int n, int m, int k, int w, int h, int rows, int cols,
                  float alpha, P p) {}
"""


def between(name: str) -> str:
    return re.search(rf"<!-- {name}:[^\n]*-->\n(.*?)\n<!-- /{name} -->", PAGE, re.DOTALL)[1]


def test_the_tables_are_those_of_the_code():
    assert between("clauses") == manual_table([SIZES, *WORDS.values()])
    assert between("inits") == manual_table(INITS.values())
    assert set(WORDS) == set(CLAUSES) and set(INITS) == set(READ_INITS)


def test_every_word_has_its_section():
    headings = set(re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE))
    assert {word.section for word in (SIZES, *WORDS.values(), *INITS.values())} <= headings
    assert all(f"`{peak}`" in PAGE for peak in PEAKS)


@pytest.mark.parametrize("word", [SIZES, *WORDS.values(), *INITS.values()], ids=lambda word: word.word or "sizes")
def test_the_example_of_a_word_can_be_read(word):
    sizes = ", ".join(
        f"{n} = 4" for n in ("n", "m", "k", "w", "h", "rows", "cols") if not word.example.startswith(f"{n} =")
    )
    text = KERNEL % f"{word.example}; {sizes}" if word.word != "ref" else KERNEL % f"{sizes}; {word.example}"
    directive = parse_directives(text, parse(text).kernels[0])
    assert not directive.problems, directive.problems
    assert word.example.split()[0].rstrip("[") in {c.word for c in directive.clauses} | {"n"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: re.search(r"void (\w+)", example)[1])
def test_an_example_of_the_manual_can_be_read(example):
    text = (
        "void saxpy_cpu(int n, float a, const float* x, const float* y, float* z) {}\nstruct Params { int stride; };\n"
        + example
    )
    (kernel,) = parse(text).kernels
    directive = parse_directives(text, kernel)
    assert directive.clauses and not directive.problems and not directive.remarks, directive.problems
    assert all(len(line) <= 120 for line in example.splitlines())


def test_the_readme_points_to_the_manual():
    assert f"({MANUAL})" in (ROOT / "README.md").read_text()
