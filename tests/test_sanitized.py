"""What compute-sanitizer said of a kernel, in hints, hovers, JSON, SARIF, `check --sanitize` and `doctor`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from dice_lsp import check_command, doctor
from dice_lsp.__main__ import main
from dice_lsp.checked import Checked, CheckedFile, CheckedKernel
from dice_lsp.hint import evidence_table, kernel_label
from dice_lsp.json_output import check_document, check_schema
from dice_lsp.pipeline import may_be_sanitized, with_sanitized
from dice_lsp.records import (
    Cheating,
    Document,
    Finding,
    KernelReport,
    NotCompiled,
    Sanitized,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)
from dice_lsp.report_formats import sarif
from tests.reports import BUILD, HOST_EVIDENCE, ON_GPU, ON_HOST, TIMING, report

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CLEAN = Sanitized(TOOLS)
RACE = Sanitized(
    ("memcheck", "racecheck"),
    (
        Finding("racecheck", "race", "written here and read at `y[i] = s;` by another thread, no barrier between", 13, "n=33"),
        Finding("racecheck", "race", "written here and read elsewhere by another thread, no barrier between", None, "n=33"),
    ),
)  # fmt: skip


# Only ever worse


def test_a_finding_makes_a_verified_kernel_unsafe() -> None:
    found = with_sanitized(report(timing=TIMING), RACE)
    assert found.verdict == Unsafe(
        "race", "line 14: written here and read at `y[i] = s;` by another thread, no barrier between", "n=33"
    )
    assert found.sanitized is RACE and found.timing == TIMING
    assert kernel_label(found).startswith("race: line 14: written here") and len(kernel_label(found)) <= 40


@pytest.mark.parametrize(
    "verdict",
    [
        Wrong("z", 3, "1", "2", "n=33", 1, 33),
        Unsafe("out_of_bounds", "x[33] of 33", "n=33"),
        Cheating("stale_result", "z is kept"),
    ],
)
def test_a_verdict_that_is_worse_already_stays(verdict: Any) -> None:
    for said in (CLEAN, RACE):
        assert with_sanitized(report(verdict=verdict), said).verdict == verdict


@pytest.mark.parametrize("verdict", [ON_GPU, ON_HOST, Unverified("no reference")])
def test_nothing_that_it_says_makes_a_verdict_better(verdict: Any) -> None:
    for said in (CLEAN, Sanitized((), (), "not installed"), Sanitized(("memcheck",), (), "racecheck did not end")):
        after = with_sanitized(report(verdict=verdict), said).verdict
        had = (*verdict.checks, "sanitizer") if said is CLEAN and isinstance(verdict, Verified) else verdict.checks
        assert after == attrs.evolve(verdict, checks=had)


def test_only_what_was_verified_on_a_gpu_is_looked_at() -> None:
    assert may_be_sanitized(report())
    assert not may_be_sanitized(report(verdict=ON_HOST, evidence=HOST_EVIDENCE))
    assert not may_be_sanitized(report(verdict=Unverified("no reference")))
    assert not may_be_sanitized(report(build=NotCompiled("no compiler")))


# In words


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {name} "))


def test_the_hover_names_the_tools_that_found_nothing() -> None:
    text = evidence_table(with_sanitized(report(), CLEAN))
    assert row(text, "compute-sanitizer").endswith("| memcheck, racecheck, initcheck, synccheck: no finding |")
    assert "compute-sanitizer" not in evidence_table(report()), "it has not run yet"


def test_the_hover_says_each_finding() -> None:
    lines = [line for line in evidence_table(with_sanitized(report(), RACE)).splitlines() if "compute-san" in line]
    assert "racecheck, line 14: written here and read at `y[i] = s;`" in lines[0] and "(n=33)" in lines[0]
    assert "racecheck: written here" in lines[1]


def test_the_hover_says_why_a_tool_did_not_run() -> None:
    reason = "compute-sanitizer is not installed: pip install 'dice-lsp[sanitizer]'"
    assert row(evidence_table(with_sanitized(report(), Sanitized((), (), reason))), "compute-sanitizer").endswith(
        f"| {reason} |"
    )
    some = evidence_table(with_sanitized(report(), Sanitized(("memcheck",), (), "racecheck did not end within 60 s")))
    assert row(some, "compute-sanitizer").endswith("| memcheck: no finding |")
    assert row(some, "not run").endswith("| racecheck did not end within 60 s |")
    assert row(evidence_table(report(verdict=ON_HOST)), "compute-sanitizer").endswith("| not run: it needs a GPU |")


# For programs


def checked(*reports: KernelReport) -> Checked:
    return Checked((CheckedFile(Path("a.cu"), tuple(CheckedKernel(each) for each in reports)),))


def test_json_has_it_and_counts_lines_from_one() -> None:
    document = json.loads(json.dumps(check_document(checked(report(), with_sanitized(report(), RACE)))))
    jsonschema.validate(document, check_schema())
    before, after = document["kernels"]
    assert before["sanitized"] is None and not before["failed"]
    assert [finding["line"] for finding in after["sanitized"]["findings"]] == [14, None]
    assert after["verdict"]["kind"] == "unsafe" and after["failed"]
    del after["sanitized"]["tools"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, check_schema())


def test_sarif_names_the_line_of_the_finding(tmp_path: Path) -> None:
    (result,) = sarif(checked(with_sanitized(report(), RACE)), tmp_path)["runs"][0]["results"]
    assert result["ruleId"] == "unsafe"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 14


# `check --sanitize`


TEXT = """
//dice: n = 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void one(int n, const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
//dice: n = 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void two(int n, const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""


class CardEngine:
    """Stands in for the engine of a machine with a card."""

    why_not: str | None = None
    verdicts: dict[str, Any] = {}
    says: dict[str, Sanitized | None] = {}
    asked: list[str] = []

    def __init__(self, settings: Any) -> None:
        type(self).asked = []

    async def close(self) -> None:
        pass

    async def why_not_sanitized(self) -> str | None:
        return self.why_not

    async def check(self, document: Document, path: str, **options: Any) -> Sequence[KernelReport]:
        self.asked.append("check")
        return [
            attrs.evolve(report(build=BUILD, verdict=self.verdicts.get(name, ON_GPU)), name=name)
            for name in ("one", "two")
        ]

    async def sanitize(self, document: Document, path: str, kernel: str, **options: Any) -> Sanitized | None:
        self.asked.append(kernel)
        return self.says[kernel]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[CardEngine]:
    (tmp_path / "a.cu").write_text(TEXT)
    monkeypatch.chdir(tmp_path)

    class Card(CardEngine):
        pass

    monkeypatch.setattr(check_command, "Engine", Card)
    return Card


def test_check_sanitize_fails_for_a_finding(card: type[CardEngine], capsys: pytest.CaptureFixture[str]) -> None:
    card.says = {"one": CLEAN, "two": RACE}
    assert main(["check", "a.cu", "--sanitize", "--json"]) == 1
    one, two = json.loads(capsys.readouterr().out)["kernels"]
    assert (one["verdict"]["kind"], two["verdict"]["kind"]) == ("verified", "unsafe")
    assert one["sanitized"]["tools"] == list(TOOLS) and card.asked == ["check", "one", "two"]


def test_check_sanitize_passes_when_nothing_is_found(
    card: type[CardEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    card.says = {"one": CLEAN, "two": CLEAN}
    assert main(["check", "a.cu", "--sanitize", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []


def test_check_without_it_does_not_ask(card: type[CardEngine], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.cu", "--json"]) == 0
    assert card.asked == ["check"]
    assert {kernel["sanitized"] for kernel in json.loads(capsys.readouterr().out)["kernels"]} == {None}


def test_kernels_that_were_not_looked_at_are_named(card: type[CardEngine], capsys: pytest.CaptureFixture[str]) -> None:
    card.verdicts = {"one": Unverified("no reference", ("bounds",))}
    card.says = {"two": Sanitized(("memcheck",), (), "racecheck did not end within 60 s")}
    assert main(["check", "a.cu", "--sanitize"]) == 0
    out = capsys.readouterr().out
    assert "one: not looked at by compute-sanitizer, because it is not verified" in out
    assert "two: compute-sanitizer: racecheck did not end within 60 s" in out
    card.says = {"two": None}
    assert main(["check", "a.cu", "--sanitize"]) == 0
    assert "two: compute-sanitizer: others use the GPU all the time; try again" in capsys.readouterr().out


def test_without_the_tool_nothing_is_checked(card: type[CardEngine], capsys: pytest.CaptureFixture[str]) -> None:
    card.why_not = "compute-sanitizer is not installed: pip install 'dice-lsp[sanitizer]'"
    assert main(["check", "a.cu", "--sanitize"]) == 2
    assert capsys.readouterr().err == f"dice-lsp: --sanitize: {card.why_not}\n"
    assert card.asked == []


def test_without_a_gpu_the_real_engine_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.cu").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "a.cu", "--sanitize", "--backend", "host"]) == 2
    said = capsys.readouterr().err
    assert said == "dice-lsp: --sanitize: compute-sanitizer needs a GPU, and kernels run on the host here\n"


# doctor


def test_doctor_tells_where_it_is_or_how_to_have_it() -> None:
    there = doctor._sanitizer({"sanitizer": "2026.4.0 (/x/compute-sanitizer)", "sanitizer_missing": ""})
    assert (there.state, there.found) == ("ok", "2026.4.0 (/x/compute-sanitizer)")
    missing = "compute-sanitizer is not installed: pip install 'dice-lsp[sanitizer]'"
    gone = doctor._sanitizer({"sanitizer": None, "sanitizer_missing": missing})
    assert (gone.state, gone.found) == ("note", "compute-sanitizer is not installed")
    assert gone.next_step == "pip install 'dice-lsp[sanitizer]'"
    host = "compute-sanitizer needs a GPU, and kernels run on the host here"
    assert doctor._sanitizer({"sanitizer": None, "sanitizer_missing": host}).found == host
