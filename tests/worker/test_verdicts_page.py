"""The page on verdicts names every check, the clauses that replace the rule, and the figures of the rule itself."""

import re
from pathlib import Path

import pytest

from dice_lsp.source.directives import parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.worker.checks import CHECKS
from dice_lsp.worker.elements import element_of
from dice_lsp.worker.tolerance import MAX_SLACK, relative_tolerance
from tests.tolerance_table import PAIRS

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "verdicts.md").read_text()


def test_every_check_stands_there_in_its_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (host|GPU|host and GPU) \|$", PAGE, re.M)
    words = {("host",): "host", ("gpu",): "GPU", ("host", "gpu"): "host and GPU"}
    assert rows == [(check.name, check.what, words[check.backends]) for check in CHECKS.values()]


def test_the_figures_are_those_of_the_rule() -> None:
    def r(name: str, terms: float = 1.0) -> float:
        element = element_of(name)
        assert element is not None
        return relative_tolerance(element, terms)

    assert (r("float"), r("float", 1e12)) == (2e-6, 1e-3)
    assert r("float", 1e6) == pytest.approx(5e-4, rel=0.05)
    assert (r("__half"), r("__nv_bfloat16"), r("double")) == (2e-3, 1.6e-2, 1e-7)
    assert "between\n  2e-6 and 1e-3" in PAGE and "a million terms 5e-4" in PAGE
    assert "`half` it is 2e-3" in PAGE and "`bfloat16` 1.6e-2" in PAGE and "`double` 1e-7" in PAGE
    assert MAX_SLACK == 8.0 and "eight times the rule" in PAGE
    assert f"{len(PAIRS)} pairs" in PAGE


def test_the_clauses_are_read() -> None:
    section = PAGE.split("## Another tolerance")[1].split("\n## ")[0]
    clauses = re.findall(r"^\| `([^`]*)` \|", section, re.M)
    assert len(clauses) == 5
    for clause in clauses:
        text = f"//dice: n = 8; out q[n]; {clause}\n__global__ void f(int* q, int n) {{}}\n"
        directive = parse_directives(text, parse(text).kernels[0])
        assert len(directive.tolerances) == 1 and not directive.problems, clause


def test_the_readme_leads_there() -> None:
    assert "docs/verdicts.md" in (ROOT / "README.md").read_text()
